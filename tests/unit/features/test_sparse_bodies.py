"""Whatever the kernel takes for a plain body is what the general way makes of it, to the bit."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.base.errors import BadInput
from service.base.rows import SparseRows
from service.base.settings import Limits
from service.features import Featurizer, load_featurizer
from service.features.request_bodies import BodyForms, BodyQuery, RequestBodies
from service.kernels.search.call import NO_THRESHOLD, NUMBER, TUNED
from service.serving.parse import parse_body
from service.serving.rows import to_rows
from service.serving.schemas.predict import Options, PredictRequest
from tests.datasets_helpers import assert_same_bits
from tests.oip_requests import changed

ANY = 1_000_000_000
LIMITS = Limits(top_r_max=ANY, beam_width_max=ANY, answer_labels_max=ANY)
N_FEATURES = 40
ROWS_MAX, FEATURES_MAX = 4, 20
FORMS = BodyForms(ROWS_MAX, FEATURES_MAX, 0, 0, Options().top_r, Options().beam_width)
PLAIN = b'{"instances":[{"indices":[3,17],"values":[0.5,1]}],"top_r":3,"beam_width":7}'
PLAIN_TUNED = b'{"threshold":"tuned","instances":[{"indices":[3],"values":[0.5]}],"top_r":3}'
PLAIN_NUMBER = b'{"threshold":0.25,"instances":[{"indices":[3],"values":[0.5]}],"exact":true}'


def featurizer_of(norm: str = "none") -> Featurizer:
    return load_featurizer({"kind": "raw", "norm": norm}, {}, N_FEATURES)


def generally(body: bytes) -> PredictRequest | None:
    try:
        return parse_body(body, PredictRequest, LIMITS)
    except BadInput:
        return None


def read(body: bytes, norm: str = "none", before: bytes = b"") -> tuple[BodyQuery, SparseRows, float] | None:
    bodies = RequestBodies(FORMS, featurizer_of(norm))
    bodies.read(PLAIN, 0)  # leaves nothing behind
    query = bodies.read(before + body, len(before))
    indptr, indices, values, number = bodies.arrays
    n = query.n_values
    rows = SparseRows(indptr[: query.n_rows + 1], indices[:n], values[:n], N_FEATURES)
    return (query, rows, number.item(0)) if query.n_rows else None


def assert_the_same(body: bytes, norm: str = "none") -> bool:
    """Compare the two; return whether the kernel took the body."""
    found = read(body, norm, b"before")
    if found is None:
        return False
    asked, found_rows, number = found
    query = generally(body)
    assert query is not None, body
    rows = to_rows(query.instances, featurizer_of(norm))
    assert_same_bits(found_rows, rows)
    if asked.threshold == NUMBER:
        assert isinstance(query.threshold, float)
        assert 0 < number < 1
        assert number == np.float32(query.threshold)
    else:
        assert query.threshold == {NO_THRESHOLD: None, TUNED: "tuned"}[asked.threshold]
    assert query.model_dump(exclude={"instances"}) == {
        **Options().model_dump(),
        "top_r": asked.top_r,
        "threshold": query.threshold,
        "beam_width": asked.beam_width,
        "exact": bool(asked.is_exact),
    }
    return True


numbers = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda x: float(str(np.float32(x)))),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-100, 100),
)
instances = st.lists(st.tuples(st.integers(0, N_FEATURES), numbers), max_size=8).map(
    lambda pairs: {"indices": [i for i, _ in pairs], "values": [v for _, v in pairs]}
)
requests = st.fixed_dictionaries(
    {"instances": st.lists(instances, max_size=5)},
    optional={
        "top_r": st.integers(0, 12),
        "beam_width": st.integers(0, 1200),
        "threshold": st.sampled_from(["tuned", "tune", "tunedd", 0, 1, -1, 2, None]) | st.floats(0, 1),
        "exact": st.sampled_from([True, False, 1, "true", None]),
    },
)


@given(requests, st.sampled_from(["l2", "l1", "none"]), st.booleans(), st.booleans())
def test_bodies_become_the_rows_of_the_general_way(
    request: dict[str, object], norm: str, tight: bool, is_sorted: bool
) -> None:
    separators = (",", ":") if tight else None
    assert_the_same(json.dumps(request, separators=separators, sort_keys=is_sorted).encode(), norm)


@given(st.data())
def test_changed_bodies_are_never_taken_for_others(data: st.DataObject) -> None:
    body = data.draw(st.sampled_from([PLAIN, PLAIN_TUNED, PLAIN_NUMBER]))
    assert_the_same(changed(data, body, None, b'0123456789.,-+eE[]{}" :\n\tx\xff\x00tbif')[0])


@pytest.mark.parametrize(
    "body",
    [
        PLAIN,
        PLAIN_TUNED,
        PLAIN_NUMBER,
        PLAIN_TUNED[:-1] + b',"threshold":1e-3, "exact" : true ,"exact":false}',
        PLAIN_NUMBER[:-1] + b',"threshold":"tuned"}',
        PLAIN_NUMBER.replace(b"0.25", b"0.99999"),
        b'{"instances":[{"indices":[],"values":[]}],"threshold" : "tuned", "threshold":"tuned" }',
        b'{"instances":[{"indices":[],"values":[]}]}',
        b' { "top_r" : 2 , "instances" : [ { "indices" : [ 39 ] , "values" : [ 1 ] } ] , "top_r" : 4 }\r',
        b'{"instances":[{"indices":[5,1,5],"values":[1,2,3]},{"indices":[0],"values":[1e-3]}]}',
    ],
)
def test_what_is_plain(body: bytes) -> None:
    assert assert_the_same(body, "l2")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"instances":[]}',
        b'{"top_r":3}',
        PLAIN + b"}",
        PLAIN + PLAIN,
        PLAIN[:-1],
        PLAIN + b"\n",
        PLAIN.replace(b"17", b"40"),
        PLAIN.replace(b'"top_r":3', b'"top_r":0'),
        PLAIN.replace(b'"top_r":3', b'"top_r":03'),
        PLAIN.replace(b'"top_r":3', b'"top_r":3.0'),
        PLAIN.replace(b'"top_r":3', b'"top_r":"3"'),
        PLAIN.replace(b'"top_r":3', b'"top_r":null'),
        PLAIN.replace(b'"top_r":3', b'"exact":1'),
        PLAIN.replace(b'"top_r":3', b'"exact":tru'),
        *(PLAIN_NUMBER.replace(b"0.25", odd) for odd in (b"0", b"1", b"-0.5", b"1.5", b".5", b"0.999999999")),
        PLAIN_NUMBER.replace(b"0.25", b"0.5").replace(b"0.5,", b"0.5 5,"),
        PLAIN.replace(b'"top_r":3', b'"tops":3'),
        PLAIN.replace(b'"top_r":3', b'"instances":[{"indices":[],"values":[]}]'),
        PLAIN.replace(b"[3,17]", b"[3,3]").replace(b"[0.5,1]", b"[3e38,3e38]"),
        b'{"instances":[{"text":"a"}]}',
    ],
)
def test_what_is_not(body: bytes) -> None:
    assert read(body) is None


@pytest.mark.parametrize(("rows", "features", "fits"), [(4, 5, True), (5, 1, False), (4, 6, False)])
def test_buffers_that_are_full_and_one_more(rows: int, features: int, fits: bool) -> None:
    instance = {"indices": list(range(features)), "values": [1] * features}
    assert assert_the_same(json.dumps({"instances": [instance] * rows}).encode()) == fits


NOT_SPARSE = [
    b'{"instances":[{"text":"a"}],"top_r":3}',
    b'{"instances":[{"features":{"a":1.0}}]}',
    b'{"instances":[{"indices":[1],"values":["a"]}]}',
    b'{"instances":[{"indices":[1],"values":[1',
    b'{"instances":[{}]}',
    b"{}",
    b"",
]


@pytest.mark.parametrize("body", NOT_SPARSE)
def test_the_work_on_a_body_is_bounded_by_its_length_and_not_by_the_buffers(body: bytes) -> None:
    """Each turn of the kernel's loops writes an index, a value or a row's end: these count."""
    bodies = RequestBodies(FORMS._replace(rows_max=64, values_max=100_000), featurizer_of("none"))
    indptr, indices, values, _ = bodies.arrays
    indptr[1:], indices[:], values[:] = -1, -1, np.nan
    assert bodies.read(body, 0).n_rows == 0
    n_written = np.count_nonzero(indptr[1:] != -1) + np.count_nonzero(indices != -1)
    n_written += np.count_nonzero(~np.isnan(values))
    assert n_written <= len(body) + 2
