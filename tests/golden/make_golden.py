"""Write the golden versions of the schema, and their answers: `python -m tests.golden.make_golden`.

It makes tests/golden/schema-N/*.tar and answers.json. Those of a released schema are never written
again. Until 0.1.0 is released, schema 1 may change, and its files with it: the answers stay.
"""

import io
import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from tests.helpers.small_models import calibrated_draft, random_rerank, small_draft, softmax_draft
from tests.oracles.problems import to_rows

from xylem.base.rows import LabelRows, SparseRows
from xylem.engine.combined_predictor import make_predictor
from xylem.engine.features.chars import fit_chars
from xylem.engine.features.parameters import CharsParameters, TfidfParameters, WordsCharsParameters
from xylem.engine.features.tfidf import fit_tfidf
from xylem.engine.options import PredictOptions
from xylem.vocabulary.combined import NamesToMatch, combined_parts, no_ranker
from xylem.vocabulary.concepts import concepts_of
from xylem.vocabulary.featurizers import featurizer_of
from xylem.vocabulary.names import NameParameters, count_words
from xylem.vocabulary.near_rows import draw_near_rows
from xylem_store.arrays import group_of
from xylem_store.label_info import Subject
from xylem_store.manifest import SCHEMA_VERSION
from xylem_store.members import Ranker
from xylem_store.names import build_names
from xylem_store.near import CONTEXT, NEAR, NEAR_FEATURES
from xylem_store.origin import REPORT, json_array
from xylem_store.store import Store
from xylem_store.version import Draft, Model, model_of

FOLDER = Path(__file__).resolve().parent / f"schema-{SCHEMA_VERSION}"

NEEDED = {"text-stems": "snowballstemmer"}
"""The library that a version cannot be read without."""

N_CONTEXT = len(NEAR_FEATURES) - CONTEXT
"""The number of features of a row's context."""

LABELS = [f"label::{i}" for i in range(9)]
NAMES = [
    "red café",
    "blue",
    "北京大学",
    "green tea",
    "cafe red",
    "none",
    "of them",
    "is there",
    "at all",
]
"""What a combined version holds, what its labels are and how they are called."""

TEXTS = ["a red café", "北京大学 red", "blue ไม่ดี cafe\u0301"]
"""The texts that features are fitted to; a reader that reads them otherwise answers otherwise."""

SET_IN_LINES = ["a re-\n d ca\u00adf\u00e9", "\ufb01ne bl\u2010 \r\nue", "red-\nBlue fi-\n\ufb01"]
"""The same for features that undo traces of line breaking."""


def text_draft(parameters: Any) -> Draft:
    """A draft whose features are those of TEXTS, or of SET_IN_LINES where they are cleaned."""
    if getattr(parameters, "stop_words", None):
        words = str(FOLDER / parameters.stop_words)
        parameters = parameters.model_copy(update={"stop_words": words})
    texts = SET_IN_LINES if parameters.clean else TEXTS
    is_words = type(parameters) is TfidfParameters
    featurizer = fit_tfidf(texts, parameters)[0] if is_words else fit_chars(texts, parameters)
    draft = small_draft(22, n_labels=9, arity=3, share=0.3, n_features=featurizer.n_features)
    arrays = {**draft.extra, **featurizer.arrays()}
    return replace(draft, features=featurizer.config(), extra=arrays)


def combined_draft(each: Sequence[Any], words: NameParameters) -> Draft:
    """A combined version of two members, with names and near rows; its ranker is made by hand."""
    members = [
        replace(model_of(text_draft(parameters)), labels=build_names(LABELS)) for parameters in each
    ]
    subjects = [
        Subject(label, None, {"en": name}) for label, name in zip(LABELS, NAMES, strict=True)
    ]
    names = NamesToMatch(concepts_of(subjects), words, count_words(TEXTS, words))
    parts = combined_parts(members, names, candidates=5, beam_width=3)
    labels = LabelRows(np.arange(4), np.arange(3, dtype=np.int32), len(LABELS))
    rows = featurizer_of(members[0]).transform_texts(TEXTS)
    parts = replace(parts, near=group_of(NEAR, draw_near_rows(rows, labels, 0)))
    n_features = len(no_ranker(parts).linear) - 1
    # the context of the row has no weight: the answers are of before there was one, and stay
    weights = np.linspace(-0.5, 0.5, n_features + 1 - N_CONTEXT, dtype=np.float32)
    ranker = Ranker(
        linear=np.insert(weights, n_features - N_CONTEXT, np.zeros(N_CONTEXT, np.float32)),
        tree_ptr=np.array([0, 3], np.int32),
        feature=np.array([0, 0, 0], np.int32),
        threshold=np.array([-1, 0, 0], np.float32),
        child=np.array([1, 1, 2], np.int32),
        value=np.array([0, -0.25, 0.75], np.float32),
    )
    return parts.draft(ranker, 0, {"ranker": "by hand"})


WORDS, CHARS = (
    TfidfParameters(lead=0, ngram_max=2, clean=False),
    CharsParameters(lead=0, char_min_df=1, clean=False),
)
CLEAN_WORDS, CLEAN_BOTH = (
    TfidfParameters(lead=0, ngram_max=2),
    WordsCharsParameters(lead=0, char_min_df=1),
)
DECISIONS: dict[str, Any] = {"n_labels": 6, "kind": "decision-tree", "n_features": 40}
REPORTED = {**random_rerank(1, 6, 40), REPORT: json_array(REPORT, {"splits": [1, 2]})}

DRAFTS: dict[str, Draft] = {
    "label-tree-float32": small_draft(20, n_labels=7, arity=3, share=0.1),
    "label-tree-bfloat16": small_draft(
        20, n_labels=20, arity=17, weights="bfloat16", link="logistic"
    ),
    "label-tree-int8": small_draft(20, n_labels=20, arity=17, weights="int8", link="hinge3"),
    "decision-tree-float32": small_draft(20, **DECISIONS),
    "decision-tree-tail": small_draft(20, **DECISIONS, link="argmax", extra=REPORTED),
    "softmax-float32": softmax_draft(21, n_labels=11, arity=3),
    "softmax-bfloat16": softmax_draft(21, n_labels=30, arity=17, dim=40, weights="bfloat16"),
    "softmax-int8-window": softmax_draft(21, n_labels=7, weights="int8", n_places=3, n_turned=1),
    "softmax-matrices": softmax_draft(21, n_labels=5, dim=6, n_places=2, n_turned=6),
    "text-unicode": text_draft(WORDS),
    "text-chars": text_draft(CHARS),
    "text-words-chars": text_draft(WordsCharsParameters(lead=0, char_min_df=1, clean=False)),
    "calibrated-one-tree": calibrated_draft(23, n_labels=12, n_trees=1),
    "calibrated-trees-int8": calibrated_draft(23, n_labels=20, arity=17, weights="int8"),
    "calibrated-decision-tail": calibrated_draft(23, **DECISIONS, extra=random_rerank(1, 6, 40)),
    "text-stop-words": text_draft(
        TfidfParameters(lead=0, ngram_max=2, stop_words="golden.txt", clean=False)
    ),
    "combined": combined_draft([WORDS, CHARS], NameParameters(clean=False)),
    "text-clean": text_draft(CLEAN_WORDS),
    "text-clean-chars": text_draft(CLEAN_BOTH),
    "combined-clean": combined_draft([CLEAN_WORDS, CLEAN_BOTH], NameParameters()),
}
if find_spec(NEEDED["text-stems"]):
    DRAFTS["text-stems"] = text_draft(
        WordsCharsParameters(lead=0, char_min_df=1, stem="en", clean=False)
    )
"""The versions by name."""


def rows_of(n_features: int) -> SparseRows:
    """Two rows: every feature with a falling value, and every third one."""
    dense = np.zeros((2, n_features))
    dense[0] = 1 / (1 + np.arange(n_features))
    dense[1, ::3] = 1
    return to_rows(dense)


def answers(model: Model) -> dict[str, Any]:
    """Return a model's predictions for two rows, exactly; for texts, if its features read texts."""
    predictor, manifest = make_predictor(model), model.manifest
    rows = rows_of(predictor.n_features)
    if manifest.features["kind"] != "raw":
        texts = SET_IN_LINES if manifest.features["clean"] else TEXTS
        rows = featurizer_of(model).transform_texts(texts)
    found = predictor.predict(rows, PredictOptions(top_r=4, exact=True))
    return {
        "ptr": found.ptr.tolist(),
        "labels": found.labels.tolist(),
        "scores": found.scores.tolist(),
    }


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    expected = {}
    with tempfile.TemporaryDirectory() as root:
        store = Store(Path(root))
        for name, draft in DRAFTS.items():
            store.publish(name, draft)
            file = io.BytesIO()
            store.export(name, 1, file)
            (FOLDER / f"{name}.tar").write_bytes(file.getvalue())
            expected[name] = answers(store.open(name))
    (FOLDER / "answers.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
