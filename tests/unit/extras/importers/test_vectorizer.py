"""Vectorizers of scikit-learn: the same texts make the same rows,
and options that we lack are refused.
"""

import contextlib
import json
import re
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings, strategies as st
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from tests.conftest import Run
from tests.helpers.datasets_helpers import assert_same_rows
from tests.helpers.real_texts import TEXTS, TEXTS_UNSEEN

from xylem.base.errors import BadModel
from xylem.engine.combined_predictor import make_predictor
from xylem.engine.features.featurizer import Featurizer
from xylem.engine.features.registry import load_featurizer
from xylem.engine.predictor import PredictOptions
from xylem.extras.importers.registry import featurizer_of, text_draft
from xylem.extras.importers.vectorizer import read_vectorizer
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.store import Store

PAGE = Path(__file__).resolve().parents[4] / "docs" / "importing.md"

NASTY = [
    "",
    " a b c ",
    "ΌΣΟΣ ΣΑΣ Σ naïve e\u0301te\u0301 İstanbul",
    "日本語 テキスト 한국어 नमस्ते ก็ดี",
    "don't e-mail C++ foo_bar __init__ 3.14",
    "tab\tnew\nline\x85next\u2028sep\u00a0nbsp \x1cgroup",
    "²³ ½ Ⅷ ٣٤ 𝟘𝟙 ß ẞ ﬁﬂ 🦊🦊 zero\u200bwidth soft\u00adhyphen",
]

VECTORIZERS: dict[str, Any] = {
    "plain": TfidfVectorizer(),
    "pairs": TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2),
    "pairs only": TfidfVectorizer(ngram_range=(2, 3), max_features=300, norm="l1"),
    "as it is written": TfidfVectorizer(lowercase=False, norm=None, smooth_idf=False),
    "no idf": TfidfVectorizer(use_idf=False, token_pattern=r"\w{2,}", max_df=0.5, dtype=np.float32),
    "stop words": TfidfVectorizer(stop_words="english"),
    "pairs without stop words": TfidfVectorizer(stop_words="english", ngram_range=(1, 2), min_df=2),
    "stop words that are terms": TfidfVectorizer(
        stop_words=["the", "use", "don't"], vocabulary=["the", "library", "use"], use_idf=False
    ),
    "counts": CountVectorizer(),
    "characters": TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), max_features=2000),
    "counts of characters": CountVectorizer(
        analyzer="char_wb", ngram_range=(1, 3), min_df=0.01, lowercase=False
    ),
    "a vocabulary of her own": TfidfVectorizer(vocabulary=["use", "the", "library", "data"]),
}


def save(vectorizer: Any, folder: Path) -> Path:
    """Write a vectorizer by the statement that the page tells."""
    statement = re.search(r"```python\n(import json.*?)```", PAGE.read_text(), re.DOTALL)
    assert statement is not None
    with contextlib.chdir(folder):
        exec(statement[1], {"vectorizer": vectorizer})
    return folder / "vectorizer.json"


Pairs = dict[str, tuple[Any, Featurizer]]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    """Every vectorizer, fitted, and what was read of it."""
    found = {}
    for name, vectorizer in VECTORIZERS.items():
        file = save(vectorizer.fit([*TEXTS[:400], *NASTY]), tmp_path_factory.mktemp("saved"))
        found[name] = vectorizer, featurizer_of(read_vectorizer(file), "none")
    return found


@pytest.mark.parametrize("name", VECTORIZERS)
def test_the_same_texts_make_the_same_rows(pairs: Pairs, name: str) -> None:
    (vectorizer, featurizer), texts = pairs[name], [*TEXTS_UNSEEN, *NASTY]
    assert_same_rows(featurizer.transform_texts(texts), vectorizer.transform(texts), 2e-6)


_WORDS = st.sampled_from(
    ["use", "The", "library", "data", "a", "x", "ing", "C++", "naïve", "日本語", "\n", "_"]
)
_CHARACTERS = st.characters(exclude_categories=("Cs", "Cc"))
_TEXTS = st.lists(
    st.one_of(st.text(_CHARACTERS, max_size=30), st.lists(_WORDS, max_size=12).map(" ".join)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=40, derandomize=True)
@given(name=st.sampled_from(sorted(VECTORIZERS)), texts=_TEXTS)
def test_any_text_makes_the_same_row(pairs: Pairs, name: str, texts: list[str]) -> None:
    vectorizer, featurizer = pairs[name]
    assert_same_rows(featurizer.transform_texts(texts), vectorizer.transform(texts), 2e-6)


def test_what_the_page_says_differs_differs(pairs: Pairs) -> None:
    vectorizer, featurizer = pairs["counts of characters"]
    assert unicodedata.category("\x00") == "Cc" and not "\x00".isspace()
    ours = featurizer.transform_texts(["ab\x00cd", "ab cd", "ab\ud800", "ab?"])
    theirs = vectorizer.transform(["ab\x00cd", "ab cd", "ab?"])
    first, second, third, fourth = (
        ours.indices[ours.indptr[i] : ours.indptr[i + 1]] for i in range(4)
    )
    assert np.array_equal(first, second) and np.array_equal(third, fourth)
    assert (theirs[0] != theirs[1]).nnz
    assert np.array_equal(np.sort(theirs[2].indices), fourth)


@pytest.mark.parametrize(
    ("vectorizer", "words"),
    [
        (
            TfidfVectorizer(strip_accents="unicode"),
            'params.strip_accents to be null, found "unicode"',
        ),
        (
            TfidfVectorizer(tokenizer=str.split),
            "params.tokenizer to be null, found \"<method 'split'",
        ),
        (TfidfVectorizer(preprocessor=str.upper), "params.preprocessor to be null"),
        (TfidfVectorizer(binary=True), "params.binary to be false, found true"),
        (TfidfVectorizer(analyzer="char"), 'params.analyzer to be word or char_wb, found "char"'),
        (TfidfVectorizer(token_pattern=r"\S+"), r"params.token_pattern to be (?u)\b\w\w+\b, found"),
        (
            TfidfVectorizer(ngram_range=(1, 9)),
            "features.ngram_max: expected an integer from 1 to 8, found 9",
        ),
        (CountVectorizer(binary=True), "params.binary to be false"),
    ],
)
@pytest.mark.filterwarnings("ignore:The parameter 'token_pattern' will not be used:UserWarning")
def test_options_that_we_do_not_have_are_refused(
    tmp_path: Path, vectorizer: Any, words: str
) -> None:
    file = save(vectorizer.fit(TEXTS[:50]), tmp_path)
    with pytest.raises(BadModel, match=re.escape(words)) as told:
        read_vectorizer(file)
    assert str(told.value).startswith(str(file))


ONE = {"one": 0}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"class": "HashingVectorizer"},
            'class to be one of TfidfVectorizer, CountVectorizer, found "Hash',
        ),
        ({"params": []}, "params to be an object, found an array of 0"),
        ({"later": 1}, "options of scikit-learn's that this release knows, found later"),
        ({"vocabulary": {}}, "vocabulary to be an object of terms, found an object of 0"),
        ({"vocabulary": {"one": 0, "two": 0}}, "each column once, found 0 twice"),
        ({"vocabulary": {"one": 0, "two": 2}}, 'columns from 0 to 1, found 2 of "two"'),
        ({"vocabulary": {"one": 0, "two": "1"}}, 'columns from 0 to 1, found "1" of "two"'),
        ({"vocabulary": {"o\x00ne": 0}}, "without control characters"),
        (
            {"vocabulary": ONE, "idf": [1.0, 2.0]},
            "to be 1 numbers, one for each term, found an array of 2",
        ),
        ({"vocabulary": ONE, "idf": [True]}, "idf to be numbers"),
        ({"vocabulary": ONE, "idf": [0.0]}, "weights above 0"),
        ({"vocabulary": ONE, "idf": [1e300]}, "weights above 0 that are finite in 32 bits"),
        ({"stop_words": "english"}, "stop_words to be an array of words"),
        ({"ngram_range": [1]}, "params.ngram_range to be two integers, found an array of 1"),
        ({"norm": "max"}, "features.norm: expected one of l2, l1, none"),
        ({"use_idf": 1}, "features.use_idf: expected true or false, found 1"),
    ],
)
def test_what_is_no_vectorizer_is_refused(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    file = save(TfidfVectorizer().fit(TEXTS[:50]), tmp_path)
    document = json.loads(file.read_text())
    for name, value in changes.items():
        (document if name in document else document["params"])[name] = value
    file.write_text(json.dumps(document))
    with pytest.raises(BadModel, match=re.escape(words)):
        read_vectorizer(file)


@pytest.mark.parametrize("content", [b"", b"\x80\x04", b"[]", b"{}", b'{"class": "\\ud800"}'])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "vectorizer.json"
    file.write_bytes(content)
    with pytest.raises(BadModel, match=re.escape(str(file))):
        read_vectorizer(file)
    with pytest.raises(BadModel, match="expected a file to read"):
        read_vectorizer(tmp_path / "none")


Matrix = tuple[Path, Any, list[str]]


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    """A folder with a store of models trained on a vectorizer's matrix, the
    vectorizer, and texts.
    """
    folder = tmp_path_factory.mktemp("matrix")
    texts = [*TEXTS_UNSEEN[:200], "a text of zyzzyva"]
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True).fit(texts)
    width = len(vectorizer.vocabulary_)
    assert -(-width // 1024) > -(-(width - 1024) // 1024)
    labels = sp.csr_matrix([[int("the" in text), int("library" in text), 1] for text in texts])
    for name, n_columns in (("all", width), ("few", width - 1100)):
        sp.save_npz(folder / f"{name}.X.npz", vectorizer.transform(texts)[:, :n_columns])
        sp.save_npz(folder / f"{name}.Y.npz", labels)
    for name, norm in (("all", "l2"), ("all", "none"), ("few", "none")):
        request = TrainRequest(
            trainer="label-tree",
            data=folder / f"{name}.X.npz",
            parameters=(f"features.norm={norm}",),
        )
        train_and_publish(Store(folder / "store"), f"{name}-{norm}", request)
    return folder, vectorizer, texts


@pytest.mark.parametrize("name", ["all-l2", "all-none", "few-none"])
def test_a_model_answers_texts_as_their_rows(run_here: Run, matrix: Matrix, name: str) -> None:
    folder, vectorizer, texts = matrix
    file, store = save(vectorizer, folder), Store(folder / "store")
    before = store.open(name, 1)
    done = run_here("import-vectorizer", name, "--file", file, "--json", store=store.root)
    assert json.loads(done.stdout) == {"model": name, "version": 2}
    after = store.open(name)
    assert after.manifest.metrics == before.manifest.metrics
    assert after.manifest.n_features == len(vectorizer.vocabulary_)
    rows = sp.csr_matrix(vectorizer.transform(texts))[:, : before.manifest.n_features]
    old = load_featurizer(before.manifest.features, before.arrays, before.manifest.n_features)
    new = load_featurizer(after.manifest.features, after.arrays, after.manifest.n_features)
    options = PredictOptions(top_r=3, exact=True)
    as_before = old.transform_csr(rows.indptr, rows.indices, rows.data)
    expected = make_predictor(before).predict(as_before, options)
    found = make_predictor(after).predict(new.transform_texts(texts), options)
    assert np.array_equal(found.labels, expected.labels)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5, atol=1e-7)


def test_what_does_not_fit_is_refused(run_here: Run, matrix: Matrix) -> None:
    folder, vectorizer, texts = matrix
    store = Store(folder / "store")
    other = read_vectorizer(save(TfidfVectorizer().fit(texts[:20]), folder))
    with pytest.raises(
        BadModel, match=r"the vocabulary of the \d+ features of all-l2@1, found \d+ terms"
    ):
        text_draft(store.open("all-l2", 1), other)
    whole = read_vectorizer(save(vectorizer, folder))
    version = store.publish("all-none", text_draft(store.open("all-none", 1), whole)).version
    with pytest.raises(BadModel, match="expected a version that takes feature ids, found tfidf"):
        text_draft(store.open("all-none", version), whole)
    done = run_here(
        "import-vectorizer", "none", "--file", folder / "vectorizer.json", store=store.root
    )
    assert done.returncode == 2 and "none" in done.stderr
