from __future__ import annotations

import re

import pytest

from service.errors import BadParameter
from service.features.parameters import (
    PARAMETERS,
    HashingParameters,
    RawParameters,
    TfidfParameters,
    as_config,
    parameters_of,
    parse_features,
)


def test_words_of_a_command_line_become_values() -> None:
    items = {"ngram_max": "2", "min_df": "3", "max_df": "0.5", "use_idf": "false", "norm": "l1"}
    found = parse_features("tfidf", {**items, "max_features": "null"})
    assert found == TfidfParameters(ngram_max=2, min_df=3, max_df=0.5, use_idf=False, norm="l1")
    assert parse_features("tfidf", {"kind": "hashing", "n_features": "512"}) == HashingParameters(
        n_features=512
    )
    assert parse_features("raw", {}) == RawParameters()


@pytest.mark.parametrize("kind", PARAMETERS)
def test_a_manifest_keeps_every_parameter(kind: str) -> None:
    parameters = parse_features(kind, {})
    assert parameters_of(as_config(parameters)) == parameters
    assert as_config(parameters)["kind"] == kind


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ({"kind": "bm25"}, "features.kind: expected one of tfidf, hashing, named, raw, found 'bm25'"),
        ({"kind": "1"}, "features.kind: expected one of tfidf, hashing, named, raw, found 1"),
        ({"stop_words": "x"}, "features of kind tfidf: expected one of lowercase, ngram_min"),
        ({"kind": "raw", "min_df": "2"}, "features of kind raw: expected one of norm, found 'min_df'"),
        ({"lowercase": "yes"}, "features.lowercase: expected true or false, found 'yes'"),
        ({"lowercase": "1"}, "features.lowercase: expected true or false, found 1"),
        ({"ngram_min": "0"}, "features.ngram_min: expected an integer from 1 to 8, found 0"),
        ({"ngram_max": "9"}, "features.ngram_max: expected an integer from 1 to 8, found 9"),
        ({"ngram_max": "true"}, "features.ngram_max: expected an integer from 1 to 8, found True"),
        ({"ngram_max": "2.0"}, "features.ngram_max: expected an integer from 1 to 8, found 2.0"),
        ({"ngram_min": "3", "ngram_max": "2"}, "features.ngram_max: expected at least ngram_min, 3, found 2"),
        ({"min_df": "0"}, "features.min_df: expected a number of rows from 1, or a share"),
        ({"min_df": "1.5"}, "features.min_df: expected a number of rows from 1, or a share"),
        ({"max_df": "nan"}, "features.max_df: expected a number of rows from 1, or a share"),
        ({"max_df": "true"}, "features.max_df: expected a number of rows from 1, or a share"),
        ({"max_features": "0"}, "features.max_features: expected null or an integer from 1 to 268435456"),
        ({"norm": "max"}, "features.norm: expected one of l2, l1, none, found 'max'"),
        ({"norm": "null"}, "features.norm: expected one of l2, l1, none, found None"),
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
        parse_features("tfidf", items)


@pytest.mark.parametrize("n_features", [1 << 8, 1 << 24])
def test_the_bounds_of_hashing(n_features: int) -> None:
    assert HashingParameters(n_features=n_features).n_features == n_features
