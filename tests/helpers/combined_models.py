"""Combined versions of two members and seven names, trained on texts with the labels' names."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.golden.make_golden import DRAFTS, SET_IN_LINES
from tests.helpers.datasets_helpers import write_lines
from xylem.base.rows import LabelRows
from xylem.engine.features.combined import members_of
from xylem.engine.features.registry import load_featurizer
from xylem.vocabulary.combine import CombineRequest, combine_and_publish
from xylem.vocabulary.concepts import concepts_of
from xylem.vocabulary.names import NameParameters, build_names, count_words
from xylem.vocabulary.near_rows import draw_near_rows
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.arrays import group_of
from xylem_store.label_info import Subject
from xylem_store.near import NEAR
from xylem_store.store import Store
from xylem_store.version import Draft, model_of

NAMES = [
    "apple tree",
    "river boat",
    "steam engine",
    "honey bee",
    "paper mill",
    "snow owl",
    "salt mine",
]
WORDS = [
    "old",
    "new",
    "small",
    "tall",
    "quiet",
    "loud",
    "early",
    "late",
    "green",
    "brown",
    "near",
    "far",
]


def documents(n: int, seed: int) -> list[dict[str, object]]:
    draw = random.Random(seed)
    rows: list[dict[str, object]] = []
    for _ in range(n):
        labels = draw.sample(range(6), 2)
        words = [word for label in labels for word in NAMES[label].split()] + draw.sample(WORDS, 5)
        draw.shuffle(words)
        rows.append({"text": " ".join(words), "labels": [f"l{label}" for label in labels]})
    return rows


def publish_combined(home: Path) -> Store:
    """Publish the combined model `both` and its two members in a store below a directory.

    The label l6 is in no row.
    """
    store = Store(home / "store")
    data = write_lines(home / "train.jsonl", documents(150, 1))
    for model, kind in (("words", "tfidf"), ("chars", "chars")):
        request = TrainRequest(
            trainer="label-tree", data=data, parameters=(f"features.kind={kind}",)
        )
        train_and_publish(store, model, request)
    names = home / "names.csv"
    names.write_text("uri,label_en\n" + "".join(f"l{i},{name}\n" for i, name in enumerate(NAMES)))
    valid = write_lines(home / "valid.jsonl", documents(110, 2))
    combine_and_publish(
        store, "both", CombineRequest([("words", 1), ("chars", 1)], valid, names, "en")
    )
    return store


LONG_NAMES = ["red café", "blue", "red blue red", "red red", "ab cd ef gh ij kl red blue"]


def full_draft() -> Draft:
    """Return a combined version in which no array is empty.

    It has names with brackets, names with neighbours, and near rows.
    """
    draft = DRAFTS["combined-clean"]
    concept_names = [*LONG_NAMES, "red (colour)", "red wine", "wine red", "wine"]
    subjects = [
        Subject(f"l{i}", None, {"en": name}, broader=(f"l{i // 2}",), related=(f"l{8 - i}",))
        for i, name in enumerate(concept_names)
    ]
    words = NameParameters()
    arrays = build_names(concepts_of(subjects), words, count_words(SET_IN_LINES, words))
    members = members_of(model_of(draft))
    rows = load_featurizer(
        members[0].manifest.features, members[0].arrays, members[0].manifest.n_features
    ).transform_texts(SET_IN_LINES)
    labels = LabelRows(
        np.array([0, 2, 4, 5]), np.array([0, 1, 0, 2, 3], np.int32), draft.labels.n_names
    )
    near = group_of(NEAR, draw_near_rows(rows, labels, 0))
    other_arrays = {
        name: array for name, array in draft.extra.items() if not name.startswith("names/")
    }
    return replace(draft, extra={**other_arrays, **arrays, **near})
