"""What kernels read of bodies and lines, against what the models of requests make of them."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.helpers.datasets_helpers import assert_same_bits, texts_alone
from tests.helpers.real_texts import TEXTS
from xylem.base.errors import BadInput
from xylem.base.rows import SparseRows
from xylem.base.settings import Limits
from xylem.engine.features.featurizer import Featurizer
from xylem.engine.features.parameters import parameters_of
from xylem.engine.features.registry import fit_featurizer, load_featurizer
from xylem.engine.kernels.search.call import NO_THRESHOLD, NUMBER, TUNED
from xylem.serving.dialects.predict.kernels.request_bodies import (
    BodyForms,
    BodyQuery,
    RequestBodies,
)
from xylem.serving.dialects.predict.schema import Options, PredictRequest
from xylem.serving.parse import parse_body, parse_line
from xylem.serving.rows import to_rows

N_FEATURES = 40
ROWS_MAX, FEATURES_MAX, CHARACTERS_MAX, BYTES_MAX = 4, 20, 90, 60
FORMS = BodyForms(ROWS_MAX, 4000, CHARACTERS_MAX, BYTES_MAX, Options().top_r, Options().beam_width)
SPARSE_FORMS = FORMS._replace(values_max=FEATURES_MAX)
ANY = 1_000_000_000
LIMITS = Limits(top_r_max=ANY, beam_width_max=ANY, answer_labels_max=ANY, text_bytes_max=BYTES_MAX)
NORMS = ["l2", "l1", "none"]
KINDS: dict[str, dict[str, Any]] = {
    "words": {"kind": "tfidf"},
    "words as they are": {"kind": "tfidf", "lowercase": False, "unicode": False, "ngram_max": 2},
    "words set in lines": {"kind": "tfidf", "clean": False},
    "chars": {"kind": "chars", "char_min_df": 1},
    "words+chars": {"kind": "words+chars", "char_min_df": 1, "norm": "l1"},
    "hashing": {"kind": "hashing", "n_features": 1 << 12, "ngram_max": 3},
    "first words": {"kind": "tfidf", "lead": 2, "bigrams": True},
    "first words and chars": {"kind": "words+chars", "char_min_df": 1, "lead": 3, "lead_weight": 2},
    "first words hashed": {"kind": "hashing", "n_features": 1 << 12, "lead": 1, "bigrams": True},
}
NO_TEXTS: list[dict[str, Any]] = [
    {"kind": "raw", "norm": "l2"},
    {"kind": "tfidf", "stop_words": "en"},
]
ROWS = [{"indices": [3, 17], "values": [0.5, 1]}, {"indices": [], "values": []}]
BEFORE = b"before"


@cache
def featurizer_of(kind: str) -> Featurizer:
    """One of KINDS, or that of sparse rows of one of NORMS."""
    return fitted({"kind": "raw", "norm": kind} if kind in NORMS else KINDS[kind])


def fitted(config: dict[str, Any]) -> Featurizer:
    if config["kind"] == "raw":
        return load_featurizer(config, {}, N_FEATURES)
    odd = (
        "Äpfel Straße ΌΣΟΣ 北京大学 naïve café éléphant déjà vu 😀 emoji",
        "İstanbul e\u0301t debug",
    )
    return fit_featurizer(texts_alone([*TEXTS[:200], *odd]), parameters_of(config))[0]


def compared(
    bodies: RequestBodies, asked: BodyQuery, general: Callable[[], tuple[Any, SparseRows]]
) -> bool:
    """Compare what a kernel read with (options, rows) of the general
    way; return whether it took the body.
    """
    if asked.n_rows == 0:
        return False
    try:
        options, expected = general()
    except BadInput as error:
        raise AssertionError("what the general way refuses was taken") from error
    found = bodies.rows_read(asked)
    if found is None:  # a text has no feature
        assert np.diff(expected.indptr).min() == 0
        return False
    rows, asked, number = found
    assert (asked.n_rows, asked.n_values) == (expected.n_rows, len(expected.indices))
    assert_same_bits(rows, expected)
    if asked.threshold == NUMBER:
        assert isinstance(options.threshold, float)
        assert 0 < number < 1
        assert number == np.float32(options.threshold)
    else:
        assert options.threshold == {NO_THRESHOLD: None, TUNED: "tuned"}[asked.threshold]
    told = {"top_r": asked.top_r, "beam_width": asked.beam_width, "exact": bool(asked.is_exact)}
    expected_options = {**Options().model_dump(), "threshold": options.threshold, **told}
    assert options.model_dump(exclude={"instances"}) == expected_options
    return True


def is_the_same(body: bytes, kind: str) -> bool:
    """Compare a body of predict; return whether the kernel took it."""
    featurizer = featurizer_of(kind)
    bodies = RequestBodies(SPARSE_FORMS if kind in NORMS else FORMS, featurizer)
    for instance in (ROWS[0], {"text": "leaves nothing behind"}):
        bodies.rows_read(bodies.read(json.dumps({"instances": [instance], "top_r": 9}).encode(), 0))

    def generally() -> tuple[Any, SparseRows]:
        request = parse_body(body, PredictRequest, LIMITS)
        return request, to_rows(request.instances, featurizer)

    return compared(bodies, bodies.read(BEFORE + body, len(BEFORE)), generally)


def parsed_line(line: bytes, *fields: str) -> Any:
    """What the general way makes of a line, which must have these fields and no others."""
    try:
        found = parse_line(line, LIMITS)
    except BadInput as error:
        raise AssertionError(f"{line!r} was taken") from error
    assert found.model_fields_set == set(fields), line
    return found


numbers = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(
        lambda x: float(str(np.float32(x)))
    ),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-100, 100),
)
instances = st.lists(st.tuples(st.integers(0, N_FEATURES), numbers), max_size=8).map(
    lambda pairs: {"indices": [i for i, _ in pairs], "values": [v for _, v in pairs]}
)
words = st.sampled_from([word for text in TEXTS[:60] for word in text.split()])
odd = st.sampled_from(
    [
        *(
            "Äpfel",
            "STRASSE",
            "straße",
            "ΌΣΟΣ",
            "北京大学",
            "éléphant",
            "😀",
            "İstanbul",
            "e\u0301t",
        ),
        *("soft\u00adly", "ﬁne", "exam-\nple", "exam- \r\n ple", "-", "\n", "\t", '"', "\\"),
    ]
)
texts = st.lists(words | odd | st.text(max_size=4), max_size=8).map(" ".join)
