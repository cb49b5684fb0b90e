"""Vectorizers in files that skops wrote: read as data, and what is no vectorizer is refused."""

import contextlib
import json
import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.datasets_helpers import assert_same_rows
from tests.helpers.foreign_models import npy
from tests.helpers.skops_files import ACCEPTED, FOLDER, REFUSED, TEXTS

from xylem.base.errors import BadModel
from xylem.extras.importers import skops
from xylem.extras.importers.registry import featurizer_of
from xylem.extras.importers.vectorizer import read_vectorizer

UNSEEN = [
    "",
    "the coins and the ships of the league",
    "Stamps! a port, STAMPS naïve",
    "nothing known",
]


@pytest.mark.parametrize("name", ACCEPTED)
def test_the_same_texts_make_the_same_rows(name: str) -> None:
    vectorizer = ACCEPTED[name]().fit(TEXTS)
    featurizer = featurizer_of(read_vectorizer(FOLDER / f"{name}.skops"), "none")
    texts = [*TEXTS, *UNSEEN]
    assert_same_rows(featurizer.transform_texts(texts), vectorizer.transform(texts), 2e-6)


@pytest.mark.parametrize("name", REFUSED)
def test_vectorizers_that_we_do_not_have_are_refused(name: str) -> None:
    file = FOLDER / f"{name}.skops"
    with pytest.raises(BadModel, match=re.escape(REFUSED[name][1])) as told:
        read_vectorizer(file)
    assert str(told.value).startswith(str(file))


Change = Callable[[dict[str, Any]], Any]


def members_of(name: str) -> dict[str, bytes]:
    with zipfile.ZipFile(FOLDER / f"{name}.skops") as archive:
        return {member: archive.read(member) for member in archive.namelist()}


def packed(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def fields(schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = schema["content"]["content"]
    return found


def list_of(node: dict[str, Any]) -> dict[str, Any]:
    """A node of a list with one item, that node, which is a list itself."""
    return {**node, "content": [node]}


def field(name: str, **new: Any) -> Change:
    return lambda schema: fields(schema)[name].update(new)


def idf(change: Callable[[dict[str, Any]], Any]) -> Change:
    """A change of the fields of the transformer."""
    return lambda schema: change(fields(schema)["_tfidf"]["content"]["content"])


CALL = {"__class__": "fly", "__module__": "antigravity", "__loader__": "ConstructorFromReduceNode"}
"""A node of which skops calls what it names."""
READ = "of a type that is read, found"
CHANGES: list[tuple[Change, str]] = [
    (
        lambda schema: schema.update(__class__="HashingVectorizer"),
        f"the root to be ObjectNode {READ} ObjectNode of "
        "sklearn.feature_extraction.text.HashingVectorizer",
    ),
    (
        lambda schema: schema.update(__module__="antigravity"),
        "ObjectNode of antigravity.TfidfVectorizer",
    ),
    (lambda schema: schema.update(protocol=3), "a protocol from 0 to 2"),
    (
        lambda schema: schema.update(content=[]),
        "content of the root to be a dict, found an array of 0",
    ),
    (lambda schema: schema.pop("protocol"), "a protocol from 0 to 2"),
    (
        lambda schema: schema.update(fields(schema)["_tfidf"]),
        "that was fitted, found no vocabulary_",
    ),
    (lambda schema: fields(schema).pop("vocabulary_"), "no vocabulary_"),
    (lambda schema: fields(schema).pop("_tfidf"), "_tfidf to be a node, found null"),
    (
        lambda schema: fields(schema).update({"analyzer": CALL}),
        f"analyzer to be JsonNode {READ} ConstructorFromReduceNode of antigravity.fly",
    ),
    (
        lambda schema: fields(schema)["vocabulary_"]["content"].update(coins=CALL),
        "vocabulary_ to be Json",
    ),
    (
        lambda schema: fields(schema).update(
            {"stop_words": list_of(fields(schema)["ngram_range"])}
        ),
        "stop_words to be JsonNode",
    ),
    (
        idf(lambda inner: inner["idf_"].update({"file": "../../etc"})),
        "../../etc in the archive, found none",
    ),
    (idf(lambda inner: inner["idf_"].pop("file")), "file of idf_ to be a str"),
    (idf(lambda inner: inner.pop("idf_")), "idf_, as scikit-learn 1.5 and newer write it"),
    (field("norm", content="l2"), "norm to be JSON"),
    (field("norm", content='["l2"]'), "norm to be a text, number, truth value or null"),
    (field("binary", content="true"), "params.binary to be false, found true"),
]


@pytest.mark.parametrize(("change", "words"), CHANGES)
def test_unknown_nodes_are_refused_and_import_nothing(
    tmp_path: Path, change: Change, words: str
) -> None:
    members = members_of("plain")
    schema = json.loads(members["schema.json"])
    change(schema)
    file = packed(
        tmp_path / "changed.skops", {**members, "schema.json": json.dumps(schema).encode()}
    )
    sys.modules.pop("antigravity", None)
    with pytest.raises(BadModel, match=re.escape(words)) as told:
        read_vectorizer(file)
    assert str(told.value).startswith(str(file)) and "antigravity" not in sys.modules


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("plain", b"", "to be a .npy file of numbers"),
        ("plain", npy(np.ones((2, 2))), "idf_ to be numbers in one dimension, found float64[2, 2]"),
        ("plain", npy(np.ones(3, np.int64)), "idf_ to be numbers in one dimension, found int64[3]"),
        ("plain", npy(np.ones(3)), "numbers, one for each term"),
        ("plain", npy(np.array([None])), "to be a .npy file of numbers"),
        # a column of a vocabulary that was cut is one number in a small file
        ("cut", npy(np.zeros(1_000, np.int64)), f"at most {skops.SCALAR_BYTES_MAX} bytes in "),
        ("cut", npy(np.zeros(2, np.int64)), "vocabulary_ to be an integer, found int64[2]"),
        ("cut", npy(np.float64(1)), "vocabulary_ to be an integer, found float64[]"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    tmp_path: Path, name: str, data: bytes, words: str
) -> None:
    members = members_of(name)
    nodes = fields(json.loads(members["schema.json"]))
    file = nodes["_tfidf"]["content"]["content"]["idf_"]["file"]
    if name == "cut":
        file = next(iter(nodes["vocabulary_"]["content"].values()))["file"]
    with pytest.raises(BadModel, match=re.escape(words)):
        read_vectorizer(packed(tmp_path / "array.skops", {**members, file: data}))


def test_what_is_too_large_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    file = FOLDER / "plain.skops"
    size = len(members_of("plain")["schema.json"])
    monkeypatch.setattr(skops, "MEMBER_BYTES_MAX", size)
    read_vectorizer(file)
    monkeypatch.setattr(skops, "MEMBER_BYTES_MAX", size - 1)
    with pytest.raises(BadModel, match=f"at most {size - 1} bytes in schema.json, found {size}"):
        read_vectorizer(file)
    monkeypatch.setattr(skops, "MEMBERS_MAX", 1)
    with pytest.raises(BadModel, match="at most 1 files in it, found 2"):
        read_vectorizer(file)


def test_a_schema_that_is_deep_or_no_object_is_refused(tmp_path: Path) -> None:
    for data in (b"[" * 100_000, b'{"content":' * 50_000, b"[]", b"null", b""):
        file = packed(tmp_path / "deep.skops", {"schema.json": data})
        with pytest.raises(BadModel, match=r"deep\.skops: expected"):
            read_vectorizer(file)
    with pytest.raises(BadModel, match=re.escape("schema.json in the archive, found none")):
        read_vectorizer(packed(tmp_path / "none.skops", {"other": b""}))


def test_every_cut_and_some_damage_is_refused_or_harmless(tmp_path: Path) -> None:
    whole, file = (FOLDER / "cut.skops").read_bytes(), tmp_path / "damaged.skops"
    for end in range(4, len(whole), 97):
        file.write_bytes(whole[:end])
        with pytest.raises(BadModel):
            read_vectorizer(file)
    for place in range(4, len(whole), 53):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        with contextlib.suppress(BadModel):
            read_vectorizer(file)
