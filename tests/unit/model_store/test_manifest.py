import copy
import json
from typing import Any

import pytest

from model_store.documents import seal
from model_store.errors import Corrupt, UnsupportedSchema
from model_store.manifest import MANIFEST, MANIFEST_BYTES_MAX, Manifest, parse_manifest, render_manifest

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
    "trainer": {
        "name": "label-tree",
        "parameters": {"leaf_size": 100, "C": 1.0, "solver": None, "x": [1, "a"]},
    },
    "seed": 0,
    "code_version": "0.1.0",
    "data": {"source": "train.txt", "rows": 10, "sha256": "a" * 64},
    "metrics": {"P@1": 86.7, "R@5": 1},
    "features": {"kind": "tfidf", "ngram_range": [1, 2]},
    "arrays": {"ensemble/parent": {"dtype": "int32", "shape": [3], "bytes": 140, "sha256": "b" * 64}},
}


def parsed(document: Any) -> Manifest:
    return parse_bytes(json.dumps(document).encode())


def parse_bytes(data: bytes) -> Manifest:
    return parse_manifest(data, seal(data, MANIFEST))


def test_round_trip() -> None:
    manifest = parsed(GOOD)
    assert manifest.trainer.parameters["leaf_size"] == 100
    assert manifest.data.rows == 10
    assert manifest.metrics == {"P@1": 86.7, "R@5": 1.0}
    assert manifest.arrays["ensemble/parent"].shape == (3,)
    assert manifest.model_bytes == 140
    data = render_manifest(manifest)
    assert parse_bytes(data) == manifest
    assert render_manifest(parse_bytes(data)) == data
    assert data.isascii()


def paths(document: Any, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(document, dict):
        return []
    return [p for key, value in document.items() for p in [(*prefix, key), *paths(value, (*prefix, key))]]


FREE = {("trainer", "parameters"), ("metrics",), ("features",), ("arrays",)}


def changed(path: tuple[str, ...], value: Any, *, remove: bool = False) -> dict[str, Any]:
    document = copy.deepcopy(GOOD)
    place = document
    for key in path[:-1]:
        place = place[key]
    if remove:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return document


@pytest.mark.parametrize("path", [p for p in paths(GOOD) if p[:-1] not in FREE], ids="/".join)
def test_a_missing_field_is_named(path: tuple[str, ...]) -> None:
    with pytest.raises(Corrupt, match=rf"manifest\.json.*expected a field '{path[-1]}', found none"):
        parsed(changed(path, None, remove=True))


@pytest.mark.parametrize("path", [(), ("trainer",), ("data",), ("arrays", "ensemble/parent")], ids=str)
def test_a_field_more_is_named(path: tuple[str, ...]) -> None:
    with pytest.raises(Corrupt, match="expected no further field, found 'more'"):
        parsed(changed((*path, "more"), 1))


@pytest.mark.parametrize("path", paths(GOOD), ids="/".join)
@pytest.mark.parametrize("value", [{"x": {}}, [[]], True, -1.5, "\x00", "é" * 2000], ids=repr)
def test_ill_typed_fields_are_refused(path: tuple[str, ...], value: Any) -> None:
    in_free = path[:-1] in FREE and path[-1] != "kind"
    if (in_free and isinstance(value, str | bool | float)) and path[0] in ("trainer", "features"):
        parsed(changed(path, value))  # a parameter may be any scalar
        return
    if path[0] == "metrics" and value == -1.5 and len(path) > 1:
        parsed(changed(path, value))
        return
    with pytest.raises(Corrupt, match=r"manifest\.json.*expected"):
        parsed(changed(path, value))


@pytest.mark.parametrize(
    ("path", "good", "bad"),
    [
        ("n_trees", [1, 65536], [0, 65537]),
        ("n_nodes", [1, 2**31 - 2], [0, 2**31 - 1]),
        ("n_chunks", [0, 2**31 - 2], [-1, 2**31 - 1]),
        ("n_labels", [1, 2**31 - 2], [0, 2**31 - 1]),
        ("n_features", [1, 2**31 - 2], [0, 2**31 - 1]),
        ("version", [1, 999_999_999], [0, 10**9]),
        ("seed", [0, 2**63 - 1], [-1, 2**63]),
        ("kind", ["label-tree"], ["forest"]),
        ("link", ["hinge3", "logistic"], ["multiway", "argmax"]),
        ("weights", ["bfloat16", "int8"], ["int4", "float16"]),
        ("created_at", ["2024-02-29T00:00:00Z"], ["2023-02-29T00:00:00Z", "2024-01-01T00:00:00"]),
        ("model", ["a", "a" * 63], ["", "A", "../x", "a/b", ".a", "a" * 64, "a\n"]),
        ("data/source", ["", "a b.jsonl.gz"], ["/etc/passwd", "a\n"]),
        ("data/sha256", ["0" * 64], ["0" * 63, "A" * 64]),
        ("arrays/ensemble/parent/shape", [[], [0, 0], [1, 2, 3]], [[1, 1, 1, 1], [-1], [1.0], [2**47]]),
        ("arrays/ensemble/parent/dtype", ["uint16"], ["object", "<i4", "bool"]),
        ("arrays/ensemble/parent/bytes", [0], [-1, 2**60]),
    ],
)
def test_ranges(path: str, good: list[Any], bad: list[Any]) -> None:
    parts = tuple(path.replace("ensemble/parent", "ensemble-parent").split("/"))
    keys = tuple(part.replace("ensemble-parent", "ensemble/parent") for part in parts)
    for value in good:
        parsed(changed(keys, value))
    for value in bad:
        with pytest.raises(Corrupt, match=keys[-1]):
            parsed(changed(keys, value))


@pytest.mark.parametrize("link", ["multiway", "argmax"])
def test_decision_trees_have_links_of_their_own(link: str) -> None:
    assert parsed({**GOOD, "kind": "decision-tree", "link": link}).link == link
    with pytest.raises(Corrupt, match="link: expected multiway or argmax, found 'hinge2'"):
        parsed({**GOOD, "kind": "decision-tree"})


@pytest.mark.parametrize("name", ["x/../y", "/x", "x/", "a.b", "A", "a/b/c/d/e", "x" * 25])
def test_array_names(name: str) -> None:
    with pytest.raises(Corrupt, match="arrays: expected names of"):
        parsed(changed(("arrays", name), GOOD["arrays"]["ensemble/parent"]))


def test_another_schema_has_its_own_refusal() -> None:
    with pytest.raises(UnsupportedSchema, match="schema_version: expected 1 to 6, found 7"):
        parsed({"schema_version": 7, "whatever": None})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b'{"a": 1, "a": 1}',
        b'{"a": NaN}',
        b'{"a": 1' + b"0" * 5000 + b"}",
        b"[" * 100_000,
        b'{"a": 1e999}',
    ],
    ids=lambda data: repr(data[:12]),
)
def test_what_is_no_json_object(data: bytes) -> None:
    with pytest.raises(Corrupt, match=r"manifest\.json"):
        parse_bytes(data)


def test_infinite_metric() -> None:
    with pytest.raises(Corrupt, match=r"metrics\.P@1: expected a finite number"):
        parse_bytes(json.dumps(GOOD).replace("86.7", "1e999").encode())


def test_counts_are_bounded() -> None:
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


@pytest.mark.parametrize(
    "features", [{"kind": "chars"}, {"kind": "words+chars"}, {"kind": "tfidf", "unicode": True}]
)
def test_features_beyond_the_first_schemas_are_of_schema_3(features: dict[str, Any]) -> None:
    found = parsed({**GOOD, "schema_version": 3, "features": features})
    assert (found.schema_version, found.features) == (3, features)
    with pytest.raises(
        Corrupt, match=r"features\.kind|schema_version: expected 3 for such features and arrays, found 1"
    ):
        parsed({**GOOD, "features": features})


@pytest.mark.parametrize("name", ["stem", "lemmas", "stop_words"])
def test_forms_of_words_are_of_schema_4(name: str) -> None:
    features = {"kind": "tfidf", "unicode": True, name: "fi"}
    assert parsed({**GOOD, "schema_version": 4, "features": features}).schema_version == 4
    with pytest.raises(Corrupt, match="schema_version: expected 4 for such features and arrays, found 3"):
        parsed({**GOOD, "schema_version": 3, "features": features})
    with pytest.raises(Corrupt, match="schema_version: expected 3 for such features and arrays, found 4"):
        parsed({**GOOD, "schema_version": 4, "features": {"kind": "tfidf", "unicode": True}})


def test_cleaned_texts_are_of_schema_6() -> None:
    features = {"kind": "tfidf", "clean": True}
    assert parsed({**GOOD, "schema_version": 6, "features": features}).schema_version == 6
    with pytest.raises(Corrupt, match="schema_version: expected 6 for such features and arrays, found 1"):
        parsed({**GOOD, "features": features})
    with pytest.raises(Corrupt, match="schema_version: expected 1 for such features and arrays, found 6"):
        parsed({**GOOD, "schema_version": 6})


@pytest.mark.parametrize("more", [{"link": "softmax"}, {"features": {"kind": "context"}}])
def test_softmax_and_windows_of_words_are_of_schema_2(more: dict[str, Any]) -> None:
    assert parsed({**GOOD, **more, "schema_version": 2}).schema_version == 2
    with pytest.raises(Corrupt, match="schema_version: expected 2 for such features and arrays, found 1"):
        parsed({**GOOD, **more})


def test_other_features_are_not_of_schema_3() -> None:
    with pytest.raises(Corrupt, match="schema_version: expected 1 for such features and arrays, found 3"):
        parsed({**GOOD, "schema_version": 3})


def test_calibration_is_of_schema_4_and_nothing_else_is() -> None:
    array = {"dtype": "float32", "shape": [2], "bytes": 136, "sha256": "0" * 64}
    arrays = {**GOOD["arrays"], "calibration/x": array}
    assert parsed({**GOOD, "schema_version": 4, "arrays": arrays}).schema_version == 4
    with pytest.raises(Corrupt, match="schema_version: expected 4 for such features and arrays, found 1"):
        parsed({**GOOD, "arrays": arrays})
    with pytest.raises(Corrupt, match="schema_version: expected 1 for such features and arrays, found 4"):
        parsed({**GOOD, "schema_version": 4})
