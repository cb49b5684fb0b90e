"""Read a vectorizer of scikit-learn from JSON or a file of skops: options, terms and weights.

docs/importing.md has the statements that write the file. Options that xylem does not support are
refused by name.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xylem.base import BadModel, BadParameter, what_is
from xylem.engine import CharsParameters, TfidfParameters
from xylem.extras.importers.files import ModelFile, ModelFiles
from xylem.extras.importers.skops import read_skops
from xylem_store import F32, BadNames, NameTable, build_names

CLASSES = ("TfidfVectorizer", "CountVectorizer")

_FIELDS = ("class", "params", "stop_words", "vocabulary", "idf")

# Patterns that match words of two characters or more, as the kernel of xylem does.
_WORDS = r"(?u)\b\w\w+\b"
_SAME_WORDS = (
    _WORDS,
    r"\b\w\w+\b",
    r"\w\w+",
    r"\w{2,}",
    r"\b\w{2,}\b",
    r"(?u)\w\w+",
    r"(?u)\b\w{2,}\b",
)

# Options that are not supported, and for each the value with which it has no effect.
_REFUSED = {"strip_accents": None, "preprocessor": None, "tokenizer": None, "binary": False}

# Options that are ignored: they tell how files were read or the vocabulary was chosen; the
# vocabulary and the stop words are fields of the file themselves.
_PASSED_OVER = {
    *("input", "encoding", "decode_error", "dtype"),
    *("min_df", "max_df", "max_features", "vocabulary", "stop_words"),
}

# Options of TfidfVectorizer, with the values with which it does the same as CountVectorizer.
_TFIDF_OPTIONS = {"use_idf": False, "smooth_idf": True, "sublinear_tf": False, "norm": None}

_OPTIONS = {"analyzer", "lowercase", "ngram_range", "token_pattern"}


class SavedVectorizer(NamedTuple):
    """A vectorizer that was read from a file.

    names       the n terms, in the order of their columns
    idf         float32[n], their weights; empty if the parameters use no weights
    stop_words  the words that are removed before n-grams are made
    source      the base name of the file, and the sha256 of its bytes
    """

    parameters: TfidfParameters | CharsParameters
    names: NameTable
    idf: F32
    stop_words: list[str]
    source: tuple[str, str]


def read_vectorizer(path: Path) -> SavedVectorizer:
    """Return the vectorizer in a file. Raises BadModel."""
    files = ModelFiles(path)
    file = files.read("", bytes_max=1 << 30)
    is_skops = file.data.startswith(b"PK\x03\x04")  # a zip archive
    fields = read_skops(file) if is_skops else file.json_object(file.data)
    missing = [name for name in _FIELDS if name not in fields]
    file.expect(not missing, f"the fields {', '.join(_FIELDS)}", f"no {', '.join(missing)}")
    file.expect(
        fields["class"] in CLASSES,
        f"class to be one of {', '.join(CLASSES)}",
        what_is(fields["class"]),
    )
    file.expect(type(fields["params"]) is dict, "params to be an object", what_is(fields["params"]))
    parameters = _parameters(file, fields["class"], fields["params"])
    terms = _terms(file, fields["vocabulary"])
    words = fields["stop_words"]
    file.expect(
        isinstance(words, list) and all(type(word) is str for word in words),
        "stop_words to be an array of words, empty if there are none",
        what_is(words),
    )
    # stop words have an effect only if they separate the words of n-grams, or are in the
    # vocabulary; with char_wb scikit-learn ignores them
    are_used = isinstance(parameters, TfidfParameters) and (
        parameters.ngram_max > 1 or any(word in fields["vocabulary"] for word in words)
    )
    stop_words = (
        sorted({word for word in words if re.fullmatch(r"\w\w+", word)}) if are_used else []
    )
    try:
        names = build_names(terms)
    except BadNames as error:
        raise file.fault("terms of 1 to 4096 bytes without control characters", error) from error
    return SavedVectorizer(
        parameters,
        names,
        _idf(file, fields["idf"], names.n_names if parameters.use_idf else 0),
        stop_words,
        (path.resolve().name, files.sha256),
    )


def _parameters(
    file: ModelFile, name: str, params: Mapping[str, Any]
) -> TfidfParameters | CharsParameters:
    """Return the parameters of a featurizer that does the same as the vectorizer.

    name    the class of the vectorizer
    params  its options

    Raises BadModel for an option that is missing or not supported.
    """
    options = {**(_TFIDF_OPTIONS if name == "CountVectorizer" else {}), **params}
    required = _OPTIONS | _TFIDF_OPTIONS.keys() | _REFUSED.keys()
    unknown_options = sorted(options.keys() - required - _PASSED_OVER)
    file.expect(
        not unknown_options,
        "options of scikit-learn's that this release knows",
        ", ".join(unknown_options),
    )
    missing = sorted(required - options.keys())
    file.expect(not missing, f"params.{', params.'.join(missing)}", "none")
    for option, value in _REFUSED.items():
        file.expect(
            options[option] is value,
            f"params.{option} to be {what_is(value)}",
            what_is(options[option]),
        )
    analyzer = options["analyzer"]
    ngrams = options["ngram_range"]
    file.expect(
        analyzer in ("word", "char_wb"), "params.analyzer to be word or char_wb", what_is(analyzer)
    )
    file.expect(
        type(ngrams) is list and len(ngrams) == 2 and all(type(n) is int for n in ngrams),
        "params.ngram_range to be two integers",
        what_is(ngrams),
    )
    shared = {
        **{key: options[key] for key in ("lowercase", "use_idf", "smooth_idf", "sublinear_tf")},
        "unicode": False,
        "clean": False,
        "lead": 0,
        "norm": "none" if options["norm"] is None else options["norm"],
    }
    try:
        if analyzer == "char_wb":
            return CharsParameters(char_min=ngrams[0], char_max=ngrams[1], **shared)
        pattern = options["token_pattern"]
        file.expect(
            pattern in _SAME_WORDS, f"params.token_pattern to be {_WORDS}", what_is(pattern)
        )
        return TfidfParameters(ngram_min=ngrams[0], ngram_max=ngrams[1], **shared)
    except BadParameter as error:
        raise BadModel(f"{file.path}: {error}") from error


def _terms(file: ModelFile, vocabulary: Any) -> list[str]:
    """Return the terms in the order of their columns.

    Raises BadModel unless the columns are 0 to n - 1, each once.
    """
    file.expect(
        isinstance(vocabulary, dict) and len(vocabulary) > 0,
        "vocabulary to be an object of terms",
        what_is(vocabulary),
    )
    terms: list[str | None] = [None] * len(vocabulary)
    for term, column in vocabulary.items():
        file.expect(
            type(column) is int and 0 <= column < len(terms),
            f"columns from 0 to {len(terms) - 1}",
            f"{what_is(column)} of {what_is(term)}",
        )
        file.expect(terms[column] is None, "each column once", f"{column} twice")
        terms[column] = term
    return [term for term in terms if term is not None]


def _idf(file: ModelFile, idf: Any, n_terms: int) -> F32:
    """Return the weights of the terms; if n_terms is 0, `idf` is ignored. Raises BadModel."""
    if n_terms == 0:
        return np.empty(0, np.float32)
    file.expect(
        type(idf) is list and len(idf) == n_terms,
        f"idf to be {n_terms} numbers, one for each term",
        what_is(idf),
    )
    file.expect(
        all(type(value) in (int, float) for value in idf), "idf to be numbers", "another value"
    )
    weights = np.array(idf, np.float64)
    is_valid = np.isfinite(weights) & (weights > 0) & (weights < np.finfo(np.float32).max)
    file.expect(bool(is_valid.all()), "weights above 0 that are finite in 32 bits", "another")
    return weights.astype(np.float32)
