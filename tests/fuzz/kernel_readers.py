"""Bodies that are almost right, read by the kernels that read requests: no test of its own.

`tests/crash/test_bounds.py` runs it with every index checked; each reader is tried for
READER_SECONDS.
"""

import contextlib
import itertools
import json
import os
import random
import re
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.helpers.oip_requests import HEADER, TYPES, binary_body, csr, tensor
from tests.unit.serving.dialects.predict.kernels import test_text_bodies
from tests.unit.serving.feedback import test_event_bodies

from xylem.base.errors import BadInput
from xylem.base.rows import SparseRows
from xylem.base.settings import Limits
from xylem.engine.features.featurizer import Featurizer
from xylem.engine.features.registry import load_featurizer
from xylem.serving.dialects.predict.kernels.request_bodies import (
    BodyForms,
    BodyQuery,
    RequestBodies,
    data_of,
)
from xylem.serving.dialects.tensors.kernels.tensor_arrays import read_arrays
from xylem.serving.dialects.tensors.reading import read_packed, read_plan
from xylem.serving.feedback.events import read_sparse
from xylem.serving.kernels.text_lines import read_sparse_lines, text_rows_of_lines
from xylem_store.names import build_names

SECONDS = float(os.environ.get("READER_SECONDS", "0.3"))
N_FEATURES = 40
ROWS_MAX, VALUES_MAX, TEXT_BYTES = 4, 20, 60
FORMS = BodyForms(ROWS_MAX, VALUES_MAX, 90, TEXT_BYTES, 5, 10)
TEXT_FORMS = FORMS._replace(values_max=4000)
RAW = load_featurizer({"kind": "raw", "norm": "l2"}, {}, N_FEATURES)
LABELS = build_names(["a", "label::3", "ä", "x y"])
EVENTS = Limits(
    events_max=4,
    label_list_max=5,
    name_bytes_max=12,
    event_id_bytes_max=8,
    features_max=6,
    text_bytes_max=TEXT_BYTES,
)
TENSORS = Limits(text_bytes_max=TEXT_BYTES)
INSTANCES: list[dict[str, Any]] = [{"indices": [3, 17], "values": [0.5, -1e-3]}]
INSTANCES += [{"indices": [], "values": []}]
WORDS: list[dict[str, Any]] = [{"text": "Äpfel \u0001 \\ of 北京 \U0001f600"}, {"text": ""}]
OPTIONS = {"top_r": 3, "beam_width": 4, "threshold": 0.25, "exact": True}
CLAIMS = (
    0,
    1,
    2,
    3,
    ROWS_MAX,
    VALUES_MAX,
    VALUES_MAX + 1,
    2**31 - 1,
    2**31,
    2**61,
    2**63,
    2**64 - 1,
    -1,
)
"""What a shape, a size or an offset may say."""


class Body(NamedTuple):
    """A body, and how many of its bytes are said to be JSON."""

    data: bytes
    n_json: int


Read = Callable[[Body], None]


def check_rows(rows: SparseRows) -> None:
    """Assert that rows are such as a search may take."""
    indptr, indices, values, n_features, _ = rows
    assert indptr[0] == 0
    assert indptr[-1] == len(indices) == len(values)
    assert (np.diff(indptr) >= 0).all()
    assert not len(indices) or (indices.min() >= 0 and indices.max() < n_features)
    assert np.isfinite(values).all()


def reader_of(featurizer: Featurizer, forms: BodyForms) -> Read:
    """Return what reads bodies of predict."""
    bodies = RequestBodies(forms, featurizer)

    def read(body: Body) -> None:
        found = bodies.rows_read(bodies.read(b"before" + body.data, len(b"before")))
        if found is not None:
            check_rows(found[0])

    return read


def tensors_of(featurizer: Featurizer, forms: BodyForms) -> Read:
    """Return what reads tensors: as binary data, or from the JSON, which becomes such data."""
    bodies = RequestBodies(forms, featurizer)

    def read(body: Body) -> None:
        data, start = body.data, body.n_json
        form = None
        packed = read_packed(data, TENSORS) if start == len(data) else None
        if packed is not None:
            data, form, start = packed.data, packed.form, packed.start
        else:
            with contextlib.suppress(BadInput):
                form = read_plan(data[:start], len(data) - start, TENSORS).form
        if form is None:
            return
        rows_out, texts_at = bodies.arrays[:3], bodies.texts_at
        fields = read_arrays(data_of(data), start, bodies.constants, rows_out, form, texts_at)
        found = bodies.rows_read(BodyQuery(*fields))
        if found is not None:
            check_rows(found[0])

    return read


def events_of(featurizer: Featurizer, *, are_lines: bool) -> Read:
    """Return what reads events."""
    served = test_event_bodies.SERVED["l2"]._replace(featurizer=featurizer, labels=LABELS)

    def read(body: Body) -> None:
        found = read_sparse(body.data, served, None, EVENTS, are_lines=are_lines)
        if found is not None:
            check_rows(found[1].rows)
            labels = found[1].labels.indices
            assert not len(labels) or 0 <= labels.min() <= labels.max() < LABELS.n_names

    return read


def sparse_lines(body: Body) -> None:
    found = read_sparse_lines(body.data.split(b"\n"), 6)
    if found is not None:
        check_rows(SparseRows(found[0], found[1].astype(np.int32), found[2], 1 << 31))


def text_lines(body: Body) -> None:
    rows = text_rows_of_lines(
        body.data.split(b"\n"), test_text_bodies.featurizer_of("words"), TEXT_BYTES
    )
    if rows is not None:
        check_rows(rows)


def whole(value: Any) -> Iterator[Body]:
    """Yield a body that is all JSON, with and without what JSON may leave out."""
    for is_tight in (False, True):
        separators = (",", ":") if is_tight else None
        data = json.dumps(value, separators=separators, ensure_ascii=not is_tight).encode()
        yield Body(data, len(data))


def predict_seeds(instances: list[dict[str, Any]]) -> list[Body]:
    requests = [{"instances": instances, **OPTIONS}, {"threshold": "tuned", "instances": instances}]
    return [body for request in requests for body in whole(request)]


def tensor_seeds(inputs: list[dict[str, Any]]) -> list[Body]:
    outputs = [{"name": "scores"}, {"name": "labels", "parameters": {"binary_data": True}}]
    request = {"id": "a-7", "parameters": OPTIONS, "inputs": inputs, "outputs": outputs}
    data, headers = binary_body(request)
    return [*whole(request), Body(data, int(headers[HEADER]))]


def event_seeds(instances: list[dict[str, Any]], *, are_lines: bool) -> list[Body]:
    labels = ["a", "label::3"]
    events: list[dict[str, Any]] = [
        {"event_id": str(i), "instance": row, "labels": labels} for i, row in enumerate(instances)
    ]
    events.append({"event_id": "last", "prediction_id": "signed", "labels": []})
    return line_seeds(events) if are_lines else list(whole({"events": events}))


def line_seeds(values: list[dict[str, Any]]) -> list[Body]:
    data = b"\n".join(json.dumps(value).encode() for value in values)
    return [Body(data, len(data))]


def readers() -> dict[str, tuple[Read, list[Body]]]:
    """Return each reader, and bodies that it takes."""
    words = test_text_bodies.featurizer_of
    text = [tensor("text", [one["text"] for one in WORDS])]
    found = {
        "sparse": (reader_of(RAW, FORMS), predict_seeds(INSTANCES)),
        "tensors": (tensors_of(RAW, FORMS), tensor_seeds(csr(INSTANCES))),
        "text tensors": (tensors_of(words("words"), TEXT_FORMS), tensor_seeds(text)),
        "lines": (sparse_lines, line_seeds(INSTANCES)),
        "text lines": (text_lines, line_seeds(WORDS)),
    }
    for kind in test_text_bodies.KINDS:
        found[f"texts: {kind}"] = reader_of(words(kind), TEXT_FORMS), predict_seeds(WORDS)
    for are_lines in (False, True):
        of = "lines of events" if are_lines else "events"
        found[of] = events_of(RAW, are_lines=are_lines), event_seeds(INSTANCES, are_lines=are_lines)
        reader = events_of(words("words"), are_lines=are_lines)
        found[f"{of} of texts"] = reader, event_seeds(WORDS, are_lines=are_lines)
    return found


READERS = readers()

_NUMBERS = re.compile(rb"-?\d+(\.\d+)?(e-?\d+)?")
_ODD = [str(claim).encode() for claim in CLAIMS] + [
    b"1e400",
    b"-0",
    b"01",
    b"1.",
    b"9" * 40,
    b"3e38",
]
_ODD += [
    *(b'"', b"\\", b"\\u12", b'"\\ud800"', b"\0", b"\xff", b"\xf4\x90"),
    *(b"{", b"[", b"]", b"}", b",", b"\n"),
]


def mutated(rng: random.Random, body: Body) -> Body:
    """Return a body with one to four changes; the JSON is then said
    to end anywhere, or where it does.
    """
    data, n_json = body
    for _ in range(rng.randint(1, 4)):
        kind = rng.randrange(6)
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice([0, 1, 1, 2, 8, len(data)]))
        if kind == 0:  # a number is another
            place = rng.choice([*_NUMBERS.finditer(data), None])
            at, end = place.span() if place else (at, end)
            new = rng.choice(_ODD)
        elif kind == 1:  # a stretch is twice there
            new = data[at:end] * 2
        elif kind == 2:  # bytes of a binary number
            new = struct.pack("<q", rng.choice([claim for claim in CLAIMS if claim < 2**63]))
            new, end = new[: rng.choice([4, 8])], min(len(data), at + len(new))
        else:
            new = rng.choice([b"", rng.choice(_ODD), bytes([rng.randrange(256)])])
        if at < n_json:
            n_json += len(new) - (end - at)
        data = data[:at] + new + data[end:]
    n_json = n_json if rng.random() < 0.9 else rng.randrange(len(data) + 1)
    return Body(data, min(max(n_json, 0), len(data)))


@pytest.mark.parametrize("name", READERS)
def test_bodies_that_were_changed(name: str, seed: int) -> None:
    read, seeds = READERS[name]
    rng, until, n_read = random.Random(seed), time.monotonic() + SECONDS, 0
    for body in seeds:
        read(body)
    while time.monotonic() < until or n_read < 1000:
        body = mutated(rng, rng.choice(seeds))
        try:
            read(body)
        except BaseException:
            print(f"found with {body!r}")
            raise
        n_read += 1
    print(f"{name}: {n_read} bodies")


@pytest.mark.parametrize("name", READERS)
def test_bodies_that_end_early(name: str) -> None:
    read, seeds = READERS[name]
    for body in seeds:
        for n in range(len(body.data) + 1):
            read(Body(body.data[:n], min(n, body.n_json)))
            read(Body(body.data, n))


def claimed(shapes: dict[str, int], sizes: dict[str, int | None], binary: bytes) -> Body:
    """Return tensors of these shapes and sizes of their binary data,
    None: they are in the JSON, empty.
    """
    inputs = []
    for name, n in shapes.items():
        size = sizes[name]
        one: dict[str, Any] = {"name": name, "shape": [n], "datatype": TYPES[name]}
        one |= {"data": []} if size is None else {"parameters": {"binary_data_size": size}}
        inputs.append(one)
    head = json.dumps({"inputs": inputs}).encode()
    return Body(head + binary, len(head))


def test_every_shape_that_a_header_can_claim() -> None:
    """All shapes of the three tensors, of as many bytes as they
    need, in JSON or binary, and of fewer.
    """
    read, _ = READERS["tensors"]
    widths = {"indptr": 8, "indices": 4, "values": 4}
    for claims in itertools.product(CLAIMS[:7] + CLAIMS[9:10], repeat=3):
        shapes = dict(zip(widths, claims, strict=True))
        sizes: dict[str, int | None] = {
            name: shapes[name] * width for name, width in widths.items()
        }
        total = min(sum(shapes[name] * width for name, width in widths.items()), 400)
        for n in {0, total - 1, total, total + 1} - {-1}:
            read(claimed(shapes, sizes, bytes([n % 2 * 255]) * n))
        for name in widths:  # this one in the JSON, with nothing in it
            read(claimed(shapes, {**sizes, name: None}, bytes(total)))


def test_every_size_and_offset_that_a_header_can_claim() -> None:
    read, _ = READERS["tensors"]
    shapes = {"indptr": 2, "indices": 1, "values": 1}
    for sizes in itertools.product(CLAIMS[:-1], repeat=3):
        for n in (0, 1, 16, 24, 25):
            read(claimed(shapes, dict(zip(shapes, sizes, strict=True)), bytes(n)))
    for ends in itertools.product([claim for claim in CLAIMS if claim < 2**63], repeat=2):
        for feature in (0, N_FEATURES - 1, N_FEATURES, -1, 2**31 - 1, -(2**31)):
            binary = struct.pack("<qqif", *ends, feature, 1.0)
            read(claimed(shapes, {"indptr": 16, "indices": 4, "values": 4}, binary))


def test_every_length_that_binary_texts_can_claim() -> None:
    read, _ = READERS["text tensors"]
    lengths = [*range(8), TEXT_BYTES, TEXT_BYTES + 1, 255, 2**31 - 1, 2**31, 2**32 - 1]
    for n, first, second in itertools.product(CLAIMS, lengths, lengths):
        for texts in (b"", b"abc", b"ab\xf0\x9f", b"x" * 2 * (TEXT_BYTES + 1)):
            binary = struct.pack("<I", first) + texts + struct.pack("<I", second) + texts
            for size in (0, 3, len(binary)):
                read(claimed({"text": n}, {"text": size}, binary[: size or None]))
