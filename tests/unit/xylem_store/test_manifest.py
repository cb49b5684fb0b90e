import copy
import json
from typing import Any

import pytest

from xylem_store.documents import seal
from xylem_store.errors import Corrupt, UnsupportedSchema
from xylem_store.manifest import (
    MANIFEST,
    MANIFEST_BYTES_MAX,
    Manifest,
    parse_manifest,
    render_manifest,
)

GOOD: dict[str, Any] = {
    "schema_version": 1,
    "model": "debtags",
    "version": 7,
    "created_at": "2026-02-03T04:05:06Z",
    "kind": "label-tree",
    "link": "hinge2",
    "weights": "float32",
    "n_trees": 1,
    "n_nodes": 3,
    "n_chunks": 1,
    "n_labels": 2,
    "n_features": 5,
    "trainer": {"name": "label-tree", "parameters": {"C": 1.0, "solver": None, "x": [1, "a"]}},
    "seed": 0,
    "code_version": "0.1.0",
    "data": {"source": "train.txt", "rows": 10, "sha256": "a" * 64},
    "metrics": {"P@1": 86.7, "R@5": 1},
    "features": {"kind": "tfidf", "ngram_range": [1, 2]},
    "arrays": {"a": {"dtype": "int32", "shape": [3], "bytes": 140, "sha256": "b" * 64}},
}


def parsed(document: Any) -> Manifest:
    return parse_bytes(json.dumps(document).encode())


def parse_bytes(data: bytes) -> Manifest:
    return parse_manifest(data, seal(data, MANIFEST))


def test_round_trip() -> None:
    manifest = parsed(GOOD)
    data = render_manifest(manifest)
    assert (json.loads(data), manifest.model_bytes) == (GOOD, 140)
    assert parse_bytes(data) == manifest
    assert render_manifest(parse_bytes(data)) == data
    assert data.isascii()


def paths(document: Any, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(document, dict):
        return []
    return [
        p
        for key, value in document.items()
        for p in [(*prefix, key), *paths(value, (*prefix, key))]
    ]


FREE = {("trainer", "parameters"), ("metrics",), ("features",), ("arrays",)}


def changed(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The good document with another value at a place; None: with nothing there."""
    document = copy.deepcopy(GOOD)
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    if value is None:
        del place[path[-1]]
    return document


@pytest.mark.parametrize("path", [p for p in paths(GOOD) if p[:-1] not in FREE], ids="/".join)
def test_a_missing_field_is_named(path: tuple[str, ...]) -> None:
    with pytest.raises(
        Corrupt, match=rf"manifest\.json.*expected a field '{path[-1]}', found none"
    ):
        parsed(changed(path, None))


@pytest.mark.parametrize("path", [(), ("trainer",), ("data",), ("arrays", "a")], ids=str)
def test_a_field_more_is_named(path: tuple[str, ...]) -> None:
    with pytest.raises(Corrupt, match="expected no further field, found 'more'"):
        parsed(changed((*path, "more"), 1))


@pytest.mark.parametrize("path", paths(GOOD), ids="/".join)
@pytest.mark.parametrize("value", [{"x": {}}, [[]], True, -1.5, "\x00", "é" * 2000], ids=repr)
def test_ill_typed_fields_are_refused(path: tuple[str, ...], value: Any) -> None:
    is_parameter = path[:-1] in FREE and path[0] in ("trainer", "features") and path[-1] != "kind"
    is_metric = path[:-1] == ("metrics",)
    if (is_parameter and isinstance(value, str | bool | float)) or (is_metric and value == -1.5):
        parsed(changed(path, value))
        return
    with pytest.raises(Corrupt, match=r"manifest\.json.*expected"):
        parsed(changed(path, value))


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("n_trees", [1, 65536], [0, 65537]),
        *((name, [1, 2**31 - 2], [0, 2**31 - 1]) for name in ("n_nodes", "n_labels", "n_features")),
        ("n_chunks", [0, 2**31 - 2], [-1, 2**31 - 1]),
        ("version", [1, 999_999_999], [0, 10**9]),
        ("seed", [0, 2**63 - 1], [-1, 2**63]),
        ("kind", ["label-tree"], ["forest"]),
        ("link", ["hinge3", "logistic"], ["multiway", "argmax"]),
        ("weights", ["bfloat16", "int8"], ["int4", "float16"]),
        ("created_at", ["2024-02-29T00:00:00Z"], ["2023-02-29T00:00:00Z", "2024-01-01T00:00:00"]),
        ("model", ["a", "a" * 63], ["", "A", "../x", "a/b", ".a", "a" * 64, "a\n"]),
        ("data/source", ["", "a b.jsonl.gz"], ["/etc/passwd", "a\n"]),
        ("data/sha256", ["0" * 64], ["0" * 63, "A" * 64]),
        ("arrays/a/shape", [[], [0, 0], [1, 2, 3]], [[1, 1, 1, 1], [-1], [1.0], [2**47]]),
        ("arrays/a/dtype", ["uint16"], ["object", "<i4", "bool"]),
        ("arrays/a/bytes", [0], [-1, 2**60]),
    ],
)
def test_ranges(name: str, good: list[Any], bad: list[Any]) -> None:
    path = tuple(name.split("/"))
    for value in good:
        parsed(changed(path, value))
    for value in bad:
        with pytest.raises(Corrupt, match=path[-1]):
            parsed(changed(path, value))


@pytest.mark.parametrize("link", ["multiway", "argmax"])
def test_decision_trees_have_links_of_their_own(link: str) -> None:
    assert parsed({**GOOD, "kind": "decision-tree", "link": link}).link == link
    with pytest.raises(Corrupt, match="link: expected multiway or argmax, found 'hinge2'"):
        parsed({**GOOD, "kind": "decision-tree"})


@pytest.mark.parametrize("name", ["x/../y", "/x", "x/", "a.b", "A", "a/b/c/d/e", "x" * 25])
def test_array_names(name: str) -> None:
    with pytest.raises(Corrupt, match="arrays: expected names of"):
        parsed(changed(("arrays", name), GOOD["arrays"]["a"]))


@pytest.mark.parametrize("schema", [2, 6, 999_999_999])
def test_another_schema_has_its_own_refusal(schema: int) -> None:
    expected = (
        rf"schema_version: expected schema 1, found {schema} \(a newer release wrote it, "
        r"or a state before 0\.1\.0; train it again\)$"
    )
    with pytest.raises(UnsupportedSchema, match=expected):
        parsed({"schema_version": schema, "whatever": None})
    for invalid in (0, -1, "1", True, None):
        with pytest.raises(Corrupt, match="schema_version: expected an integer"):
            parsed({"schema_version": invalid, "whatever": None})


@pytest.mark.parametrize(
    "data",
    [
        *(
            b"",
            b"[]",
            b"{",
            b"\xff",
            b'{"a": 1, "a": 1}',
            b'{"a": NaN}',
            b'{"a": 1e999}',
            b"[" * 100_000,
        ),
        b'{"a": 1' + b"0" * 5000 + b"}",
    ],
    ids=lambda data: repr(data[:12]),
)
def test_what_is_no_json_object(data: bytes) -> None:
    with pytest.raises(Corrupt, match=r"manifest\.json"):
        parse_bytes(data)


def test_metrics_are_finite_and_counts_are_bounded() -> None:
    with pytest.raises(Corrupt, match=r"metrics\.P@1: expected a finite number"):
        parse_bytes(json.dumps(GOOD).replace("86.7", "1e999").encode())
    with pytest.raises(Corrupt, match="at most 256"):
        parsed(changed(("metrics",), {str(i): 1.0 for i in range(257)}))
    parsed(changed(("metrics",), {str(i): 1.0 for i in range(256)}))
    data = json.dumps(GOOD).encode()
    parse_bytes(data + b" " * (MANIFEST_BYTES_MAX - len(data)))
    with pytest.raises(Corrupt, match="at most"):
        parse_bytes(data + b" " * (MANIFEST_BYTES_MAX - len(data) + 1))


@pytest.mark.parametrize("sealed", [b"", b"0" * 64 + b"  manifest.json\n"])
def test_the_seal_must_fit(sealed: bytes) -> None:
    with pytest.raises(Corrupt, match=r"manifest\.sha256"):
        parse_manifest(json.dumps(GOOD).encode(), sealed)
