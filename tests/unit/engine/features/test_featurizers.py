"""Hashing, named and raw features, what all kinds have in common, and their parameters."""

import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tests.helpers.datasets_helpers import assert_same_bits, check_sparse, texts_alone
from tests.helpers.real_texts import TEXTS
from tests.oracles.text_tokens import slow_hash
from tests.oracles.trees import row_dicts

from xylem.base.errors import BadData, BadInstance, BadParameter
from xylem.base.parameters import scalar_of
from xylem.base.rows import SparseRows
from xylem.datasets import read_dataset
from xylem.engine.features import parameters
from xylem.engine.features.characters import BLOCK_TEXTS
from xylem.engine.features.featurizer import Featurizer
from xylem.engine.features.parameters import parameters_of
from xylem.engine.features.registry import (
    default_kind,
    feature_names,
    fit_featurizer,
    load_featurizer,
)
from xylem_store.errors import Corrupt

WORDS = texts_alone(["one two", "two three"])
RAW = SparseRows(np.array([0, 2, 3]), np.arange(3, dtype=np.int32), np.float32([3, 4, 5]), 3)
DATA = {
    **dict.fromkeys(("tfidf", "chars", "words+chars", "hashing"), WORDS),
    "named": replace(WORDS, texts=None, named_rows=[{"x": 3, "y": 4.0}, {"b": 1}]),
    "raw": replace(WORDS, texts=None, rows=RAW),
}
"""What each kind of features is made of."""


def fitted(kind: str, **given: Any) -> tuple[Featurizer, SparseRows]:
    return fit_featurizer(DATA[kind], parameters_of({"kind": kind, **given}))


def as_dicts(rows: SparseRows) -> list[dict[int, float]]:
    check_sparse(rows)
    return row_dicts(rows[:3])


WITHOUT_IDF = [(kind, {"use_idf": False}) for kind in ("tfidf", "chars", "words+chars")]


@pytest.mark.parametrize(("kind", "given"), [*((kind, {}) for kind in DATA), *WITHOUT_IDF])
def test_every_kind_is_stored_and_loaded(kind: str, given: dict[str, Any]) -> None:
    featurizer, rows = fitted(kind, **given)
    assert (featurizer.kind, featurizer.n_features) == (kind, rows.n_features)
    arrays = {name: array.copy() for name, array in featurizer.arrays().items()}
    config = featurizer.config()
    assert all(name.startswith("features/") for name in arrays)
    for array in arrays.values():
        array.flags.writeable = False
    loaded = load_featurizer(config, arrays, featurizer.n_features)
    assert loaded.parameters == featurizer.parameters
    assert as_dicts(loaded.transform_dataset(DATA[kind])) == as_dicts(rows)
    names = feature_names(config, arrays)
    assert (names is not None) == (kind not in ("hashing", "raw"))
    if names is not None:
        group = "chars" if "chars" in kind else "names"
        with pytest.raises(Corrupt, match=f"features/{group}: expected 99 names"):
            load_featurizer(config, arrays, 99)
    assert default_kind(DATA[kind]) == (kind if kind in ("named", "raw") else "tfidf")


DAMAGES: list[tuple[str, Any, str]] = [
    ("features/idf", None, "expected an array features/idf, found none"),
    ("features/idf", lambda a: a[1:], "features.idf.npy: expected float32[3], found float32[2]"),
    ("features/idf", lambda a: a.astype(np.float64), "expected float32[3], found float64[3]"),
    (
        "features/idf",
        lambda a: a * np.float32("nan"),
        "features/idf: expected finite weights above 0",
    ),
    ("features/idf", lambda a: -a, "features/idf: expected finite weights above 0"),
    ("features/names/slots", None, "expected an array features/names/slots, found none"),
    (
        "features/names/slots",
        lambda a: a[::-1].copy(),
        "features.names.utf8.npy: expected a table of names",
    ),
    (
        "features/names/utf8",
        lambda a: a + np.uint8(200),
        "names.utf8.npy: expected a table of names",
    ),
    (
        "features/names/offsets",
        lambda a: a[:-1].copy(),
        "features.names.utf8.npy: expected a table of names",
    ),
    ("features/char_idf", None, "expected an array features/char_idf, found none"),
    ("features/char_idf", lambda a: a[1:], "features.char_idf.npy: expected float32"),
    ("features/chars/slots", None, "expected an array features/chars/slots, found none"),
    (
        "features/chars/slots",
        lambda a: a[::-1].copy(),
        "features.chars.utf8.npy: expected a table of names",
    ),
]
"""An array of a version, what becomes of it, and what is told."""


@pytest.mark.parametrize(
    ("kind", "name", "change", "fault"),
    [
        *(("tfidf", *damage) for damage in DAMAGES if "char" not in damage[0]),
        *(("words+chars", *damage) for damage in DAMAGES),
    ],
)
def test_damaged_state_is_refused(kind: str, name: str, change: Any, fault: str) -> None:
    featurizer, _ = fitted(kind, **({"char_min_df": 1} if kind == "words+chars" else {}))
    arrays = dict(featurizer.arrays())
    array = arrays.pop(name)
    if change is not None:
        arrays[name] = change(array)
    with pytest.raises(Corrupt, match=re.escape(fault)):
        load_featurizer(featurizer.config(), arrays, featurizer.n_features)


@pytest.mark.parametrize("kind", DATA)
def test_every_kind_takes_ids_and_values_and_leaves_them_alone(kind: str) -> None:
    featurizer, _ = fitted(kind, norm="none")
    arrays = np.array([0, 3, 3, 4]), np.array([2, 0, 2, 1], np.int32), np.float32([1, 0.5, 2, 7])
    copies = [array.copy() for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    rows = featurizer.transform_csr(*arrays)
    assert all(np.array_equal(a, b) for a, b in zip(arrays, copies, strict=True))
    assert as_dicts(rows) == [{0: 0.5, 2: 3.0}, {}, {1: 7.0}]
    assert rows.n_features == featurizer.n_features
    assert as_dicts(featurizer.transform_csr(np.array([0]), np.zeros(0, int), np.zeros(0))) == []


@pytest.mark.parametrize(
    ("norm", "values"), [("l2", [0.6, 0.8]), ("l1", [3 / 7, 4 / 7]), ("none", [3.0, 4.0])]
)
@pytest.mark.parametrize("kind", DATA)
def test_rows_are_normalised(kind: str, norm: str, values: list[float]) -> None:
    featurizer, rows = fitted(kind, norm=norm)
    found = featurizer.transform_csr(
        np.array([0, 2, 2, 3]), np.array([0, 1, 1]), np.array([3, 4, 0])
    )
    np.testing.assert_allclose(found.values, [*values, 0.0], rtol=1e-7)
    if kind in ("named", "raw"):
        np.testing.assert_allclose(rows.values[:2], values, rtol=1e-7)


@pytest.mark.parametrize(
    ("kind", "texts", "named"),
    [
        ("tfidf", True, False),
        ("hashing", True, True),
        ("named", False, True),
        ("raw", False, False),
    ],
)
def test_instances_of_another_kind_are_refused(kind: str, texts: bool, named: bool) -> None:
    featurizer, _ = fitted(kind)
    for taken, transform, found in (
        (texts, lambda: featurizer.transform_texts(["one"]), "text"),
        (named, lambda: featurizer.transform_named([{"x": 1.0}]), "named features"),
    ):
        if taken:
            assert transform().n_rows == 1
        else:
            with pytest.raises(
                BadInstance, match=f"ids and values, which this model takes, found {found}"
            ):
                transform()


@pytest.mark.parametrize(
    ("indptr", "indices", "values", "fault"),
    [
        ([0, 1], [3], [1.0], "expected feature ids from 0 to 2, found 3 to 3"),
        ([0, 1], [-1], [1.0], "expected feature ids from 0 to 2, found -1 to -1"),
        ([0, 1], np.array([2**64 - 1], np.uint64), [1.0], "expected feature ids from 0 to 2"),
        ([0, 1], [0], [1.0, 2.0], "expected as many values as indices, 1, found 2"),
        ([0, 1], [0], [np.nan], "finite in 32 bits"),
        ([0, 1], [0], [1e300], "finite in 32 bits"),
        ([0, 1], [0], [-np.inf], "finite in 32 bits"),
        ([0, 2], [1, 1], [3e38, 3e38], "finite in 32 bits"),
        ([0, 2], [0], [1.0], "expected indptr to ascend from 0 to the 1 indices"),
        ([1, 1], [0], [1.0], "expected indptr to ascend"),
        ([0, 2, 1], [0], [1.0], "expected indptr to ascend"),
        ([0, -1, 1], [0], [1.0], "expected indptr to ascend"),
        (np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0), "expected indptr to ascend"),
        ([0.0, 1.0], [0], [1.0], "expected integers, integers and numbers"),
        ([0, 1], [0.0], [1.0], "expected integers, integers and numbers"),
        ([0, 1], [True], [1.0], "expected integers, integers and numbers"),
        ([0, 1], [0], [True], "expected integers, integers and numbers"),
        ([0, 1], [0], ["1"], "expected integers, integers and numbers"),
        ([[0, 1]], [0], [1.0], "in one dimension"),
    ],
)
def test_bad_compressed_rows(indptr: Any, indices: Any, values: Any, fault: str) -> None:
    featurizer, _ = fitted("raw")
    with pytest.raises(BadInstance, match=fault):
        featurizer.transform_csr(np.array(indptr), np.array(indices), np.array(values))


def vars_of(kind: str, **given: Any) -> dict[str, Any]:
    return {"kind": kind, **vars(parameters_of({"kind": kind, **given}))}


@given(st.lists(st.text("abcä_1", min_size=2, max_size=4), max_size=12), st.booleans())
def test_hashing_is_its_definition(words: list[str], signed: bool) -> None:
    chosen = {"signed": signed, "norm": "none", "ngram_max": 2, "lead": 0}
    config = vars_of("hashing", n_features=256, **chosen)
    row: dict[int, float] = {}
    for ngram in [*words, *map(" ".join, itertools.pairwise(words))]:
        h = slow_hash(ngram.encode())
        row[h % 256] = row.get(h % 256, 0.0) + (-1.0 if signed and h >> 63 else 1.0)
    assert as_dicts(load_featurizer(config, {}, 256).transform_texts([" ".join(words)])) == [row]


@pytest.mark.parametrize("kind", ["tfidf", "chars", "words+chars", "hashing"])
def test_texts_of_a_block_have_the_rows_that_each_has_alone(kind: str) -> None:
    featurizer, _ = fit_featurizer(texts_alone(TEXTS), parameters_of({"kind": kind}))
    texts = (TEXTS * 3)[: BLOCK_TEXTS + 100]
    together = featurizer.transform_texts(texts)
    check_sparse(together)
    for i in (0, 5, BLOCK_TEXTS - 1, BLOCK_TEXTS, BLOCK_TEXTS + 99):
        assert_same_bits(together.cut(i, i + 1), featurizer.transform_texts([texts[i]]))
    assert featurizer.transform_texts([]).indptr.tolist() == [0]
    assert featurizer.transform_texts(["", " \n"]).indptr.tolist() == [0, 0, 0]


def test_named_features() -> None:
    featurizer, rows = fitted("named", norm="none")
    names = feature_names(featurizer.config(), featurizer.arrays())
    assert names is not None and [names.name(i) for i in range(3)] == ["b", "x", "y"]
    assert as_dicts(rows) == [{1: 3.0, 2: 4.0}, {0: 1.0}]
    instances = [{"y": 1, "new": 5.0, "b": 0.5, "\ud800": 1}, {}, {"other": 1}]
    assert as_dicts(featurizer.transform_named(instances)) == [{0: 0.5, 2: 1.0}, {}, {}]
    assert featurizer.transform_named([]).n_rows == 0


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (True, "expected numbers, found True"),
        ("1", "expected numbers, found '1'"),
        (None, "expected numbers, found None"),
        ([1], "expected numbers, found [1]"),
        (float("nan"), "finite in 32 bits"),
        (float("inf"), "finite in 32 bits"),
        (-1e39, "finite in 32 bits"),
        (10**400, "finite in 32 bits"),
    ],
)
@pytest.mark.parametrize("name", ["x", "unknown"])
def test_bad_named_values(value: Any, fault: str, name: str) -> None:
    featurizer, _ = fitted("named")
    with pytest.raises(BadInstance, match=re.escape(fault)) as caught:
        featurizer.transform_named([{"x": 1.0}, {"y": 2, name: value}])
    assert (caught.value.path or "").startswith("instances[1]")


@pytest.mark.parametrize(
    ("named", "fault"),
    [
        ({}, "expected instances with a feature, found none"),
        ({"": 1.0}, "at least one byte"),
        ({"a\nb": 1}, "control"),
    ],
)
def test_named_features_that_cannot_be_fitted(named: dict[str, float], fault: str) -> None:
    with pytest.raises(BadData, match=fault):
        fit_featurizer(replace(DATA["named"], named_rows=[named]), parameters_of({"kind": "named"}))


def test_rows_of_no_features_cannot_be_fitted(tmp_path: Path) -> None:
    (tmp_path / "none.svm").write_text("0\n1\n")
    with pytest.raises(BadData, match="expected instances with a feature, found none"):
        fit_featurizer(read_dataset(tmp_path / "none.svm"), parameters_of({"kind": "raw"}))


@pytest.mark.parametrize(
    ("data", "kind"), [("raw", "tfidf"), ("tfidf", "raw"), ("raw", "hashing"), ("raw", "named")]
)
def test_parameters_for_other_data_are_refused(data: str, kind: str) -> None:
    with pytest.raises(
        BadParameter, match=f"expected a kind for this data, for example {data}, found {kind}"
    ):
        fit_featurizer(DATA[data], parameters_of({"kind": kind}))


def without(key: str, config: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name != key}


@pytest.mark.parametrize(
    ("config", "n_features", "fault"),
    [
        ({}, 3, "features.kind: expected one of"),
        ({"kind": "raw"}, 3, "manifest: expected features.norm, found none"),
        ({"kind": "raw", "norm": "l3"}, 3, "features.norm: expected one of l2, l1, none"),
        (
            {"kind": "raw", "norm": "l2", "more": 1},
            3,
            "features.more: expected only norm, found another",
        ),
        ({"kind": ["raw"], "norm": "l2"}, 3, "features.kind: expected one of"),
        ({"kind": "named", "norm": "l2"}, 3, "expected an array features/names/offsets"),
        (without("unicode", vars_of("words+chars")), 3, "expected features.unicode, found none"),
        (without("char_max", vars_of("words+chars")), 3, "expected features.char_max, found none"),
        (vars_of("hashing"), 3, "features.n_features to be 3, found 1048576"),
        (
            vars_of("hashing") | {"signed": 1},
            1 << 20,
            "features.signed: expected true or false, found 1",
        ),
        (vars_of("tfidf") | {"ngram_max": "1"}, 3, "features.ngram_max: expected an integer"),
    ],
)
def test_configurations_that_are_not_sound(
    config: dict[str, Any], n_features: int, fault: str
) -> None:
    with pytest.raises(Corrupt, match=re.escape(fault)):
        load_featurizer(config, {}, n_features)


def of_words(kind: str, items: dict[str, str]) -> parameters.FeatureParameters:
    """The parameters that words of a command line say."""
    return parameters_of({"kind": kind, **{key: scalar_of(text) for key, text in items.items()}})


def test_words_of_a_command_line_become_values() -> None:
    items = {"ngram_max": "2", "min_df": "3", "max_df": "0.5", "use_idf": "false", "norm": "l1"}
    found = of_words("tfidf", {**items, "max_features": "null"})
    assert found == parameters.TfidfParameters(
        ngram_max=2, min_df=3, max_df=0.5, use_idf=False, norm="l1"
    )
    for n_features in (1 << 8, 512, 1 << 24):
        hashing = of_words("tfidf", {"kind": "hashing", "n_features": str(n_features)})
        assert hashing == parameters.HashingParameters(n_features=n_features)
    assert of_words("raw", {}) == parameters.RawParameters()
    kept = [
        of_words("tfidf", {"min_df": share}).min_df for share in ("1", "7", "1.0", "0.0", "0.5")
    ]
    assert list(map(repr, kept)) == [
        "1",
        "7",
        "1.0",
        "0.0",
        "0.5",
    ]  # integers count rows, floats are shares


@pytest.mark.parametrize(
    "given", [{}, {"norm": "l1"}, {"min_df": 2}, {"n_features": 512}, {"kind": "raw"}]
)
def test_what_is_right_for_some_data_waits_for_it(given: dict[str, Any]) -> None:
    parameters.check_features(given)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"norm": "l3"}, ["features.norm"]),
        ({"kind": "raw", "min_df": 2, "norm": 1}, ["features.norm", "features.min_df"]),
        ({"min_df": 0, "ngram_max": 99}, ["features.ngram_max", "features.min_df"]),
        ({"n_features": 512, "use_idf": True}, ["features.n_features"]),
        ({"kind": None}, ["features.kind"]),
    ],
)
def test_what_is_right_for_no_data_is_refused(given: dict[str, Any], names: list[str]) -> None:
    with pytest.raises(BadParameter) as caught:
        parameters.check_features(given)
    assert [fault.name for fault in caught.value.faults] == names


@pytest.mark.parametrize("kind", parameters.PARAMETERS)
def test_a_manifest_keeps_every_parameter(kind: str) -> None:
    given = parameters_of({"kind": kind})
    config = parameters.as_config(given)
    assert (parameters_of(config), config["kind"]) == (given, kind)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (
            {"kind": "okapi"},
            f'kind: expected one of {", ".join(parameters.PARAMETERS)}, found "okapi"',
        ),
        (
            {"kind": "1"},
            f"features.kind: expected one of {', '.join(parameters.PARAMETERS)}, found 1",
        ),
        ({"stopwords": "x"}, "features.stopwords: expected only lowercase, unicode, clean, stem"),
        (
            {"kind": "raw", "min_df": "2"},
            "features.min_df: expected only norm, found another parameter",
        ),
        ({"lowercase": "yes"}, 'features.lowercase: expected true or false, found "yes"'),
        ({"lowercase": "1"}, "features.lowercase: expected true or false, found 1"),
        ({"ngram_min": "0"}, "features.ngram_min: expected an integer from 1 to 8, found 0"),
        ({"ngram_max": "9"}, "features.ngram_max: expected an integer from 1 to 8, found 9"),
        ({"ngram_max": "true"}, "features.ngram_max: expected an integer from 1 to 8, found true"),
        ({"ngram_max": "2.0"}, "features.ngram_max: expected an integer from 1 to 8, found 2.0"),
        (
            {"ngram_min": "3", "ngram_max": "2"},
            "features.ngram_max: expected at least ngram_min, 3, found 2",
        ),
        ({"min_df": "0"}, "features.min_df: expected a number of rows from 1, or a share"),
        ({"min_df": "1.5"}, "features.min_df: expected a number of rows from 1, or a share"),
        ({"max_df": "nan"}, "features.max_df: expected a number of rows from 1, or a share"),
        ({"max_df": "true"}, "features.max_df: expected a number of rows from 1, or a share"),
        (
            {"max_features": "0"},
            "features.max_features: expected null or an integer from 1 to 268435456",
        ),
        ({"norm": "max"}, 'features.norm: expected one of l2, l1, none, found "max"'),
        ({"norm": "null"}, "features.norm: expected one of l2, l1, none, found null"),
        (
            {"kind": "hashing", "n_features": "1000"},
            "features.n_features: expected a power of two from 256",
        ),
        (
            {"kind": "hashing", "n_features": "128"},
            "features.n_features: expected a power of two from 256",
        ),
        (
            {"kind": "hashing", "n_features": "33554432"},
            "n_features: expected a power of two from 256",
        ),
        ({"kind": "hashing", "signed": "0"}, "features.signed: expected true or false, found 0"),
        (
            {"stem": "finnish"},
            "stem: expected the code of a language, found finnish; did you mean fi?",
        ),
        ({"stem": "3"}, "features.stem: expected null or the code of a language, as fi, found 3"),
        ({"lemmas": "fii"}, "found another language; did you mean fi?"),
        ({"stop_words": "klingon"}, "found another language"),
        (
            {"stem": "en", "lemmas": "en"},
            "features.lemmas: expected one of stem and lemmas, found both",
        ),
    ],
)
def test_bad_parameters(items: dict[str, str], message: str) -> None:
    with pytest.raises(BadParameter, match=re.escape(message)):
        of_words("tfidf", items)
