import re
from typing import Any

import pytest

from service.base.errors import BadParameter
from service.base.parameters import scalar_of
from service.features.parameters import (
    PARAMETERS,
    FeatureParameters,
    HashingParameters,
    RawParameters,
    TfidfParameters,
    as_config,
    check_features,
    parameters_of,
)


def of_words(kind: str, items: dict[str, str]) -> FeatureParameters:
    """The parameters that words of a command line say."""
    return parameters_of({"kind": kind, **{key: scalar_of(text) for key, text in items.items()}})


def test_words_of_a_command_line_become_values() -> None:
    items = {"ngram_max": "2", "min_df": "3", "max_df": "0.5", "use_idf": "false", "norm": "l1"}
    found = of_words("tfidf", {**items, "max_features": "null"})
    assert found == TfidfParameters(ngram_max=2, min_df=3, max_df=0.5, use_idf=False, norm="l1")
    assert of_words("tfidf", {"kind": "hashing", "n_features": "512"}) == HashingParameters(n_features=512)
    assert of_words("raw", {}) == RawParameters()


@pytest.mark.parametrize("share", [1, 7, 1.0, 0.0, 0.5])
def test_integers_count_rows_and_floats_are_shares(share: float) -> None:
    kept = TfidfParameters(min_df=share).min_df
    assert kept == share and type(kept) is type(share)


@pytest.mark.parametrize("given", [{}, {"norm": "l1"}, {"min_df": 2}, {"n_features": 512}, {"kind": "raw"}])
def test_what_is_right_for_some_data_waits_for_it(given: dict[str, Any]) -> None:
    check_features(given)


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
        check_features(given)
    assert [fault.name for fault in caught.value.faults] == names


@pytest.mark.parametrize("kind", PARAMETERS)
def test_a_manifest_keeps_every_parameter(kind: str) -> None:
    parameters = parameters_of({"kind": kind})
    assert parameters_of(as_config(parameters)) == parameters
    assert as_config(parameters)["kind"] == kind


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ({"kind": "okapi"}, f'kind: expected one of {", ".join(PARAMETERS)}, found "okapi"'),
        ({"kind": "1"}, f"features.kind: expected one of {', '.join(PARAMETERS)}, found 1"),
        ({"stopwords": "x"}, "features.stopwords: expected only lowercase, unicode, clean, stem"),
        ({"kind": "raw", "min_df": "2"}, "features.min_df: expected only norm, found another parameter"),
        ({"lowercase": "yes"}, 'features.lowercase: expected true or false, found "yes"'),
        ({"lowercase": "1"}, "features.lowercase: expected true or false, found 1"),
        ({"ngram_min": "0"}, "features.ngram_min: expected an integer from 1 to 8, found 0"),
        ({"ngram_max": "9"}, "features.ngram_max: expected an integer from 1 to 8, found 9"),
        ({"ngram_max": "true"}, "features.ngram_max: expected an integer from 1 to 8, found true"),
        ({"ngram_max": "2.0"}, "features.ngram_max: expected an integer from 1 to 8, found 2.0"),
        ({"ngram_min": "3", "ngram_max": "2"}, "features.ngram_max: expected at least ngram_min, 3, found 2"),
        ({"min_df": "0"}, "features.min_df: expected a number of rows from 1, or a share"),
        ({"min_df": "1.5"}, "features.min_df: expected a number of rows from 1, or a share"),
        ({"max_df": "nan"}, "features.max_df: expected a number of rows from 1, or a share"),
        ({"max_df": "true"}, "features.max_df: expected a number of rows from 1, or a share"),
        ({"max_features": "0"}, "features.max_features: expected null or an integer from 1 to 268435456"),
        ({"norm": "max"}, 'features.norm: expected one of l2, l1, none, found "max"'),
        ({"norm": "null"}, "features.norm: expected one of l2, l1, none, found null"),
        ({"kind": "hashing", "n_features": "1000"}, "features.n_features: expected a power of two from 256"),
        ({"kind": "hashing", "n_features": "128"}, "features.n_features: expected a power of two from 256"),
        (
            {"kind": "hashing", "n_features": "33554432"},
            "features.n_features: expected a power of two from 256",
        ),
        ({"kind": "hashing", "signed": "0"}, "features.signed: expected true or false, found 0"),
    ],
)
def test_bad_parameters(items: dict[str, str], message: str) -> None:
    with pytest.raises(BadParameter, match=re.escape(message)):
        of_words("tfidf", items)


@pytest.mark.parametrize("n_features", [1 << 8, 1 << 24])
def test_the_bounds_of_hashing(n_features: int) -> None:
    assert HashingParameters(n_features=n_features).n_features == n_features
