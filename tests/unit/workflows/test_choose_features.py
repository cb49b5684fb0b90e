"""Features that a training makes or chooses: vocabularies, `features.kind=auto`, rows
without any.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tests.helpers.datasets_helpers import refused, write_lines

import xylem
from xylem.base.errors import BadParameter
from xylem.workflows.choose_features import (
    BLOCKS,
    CANDIDATES,
    LEADS,
    PLAIN,
    ROWS_MIN,
    TOLERANCE,
    divide,
)
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem.workflows.training_work import TrainReport
from xylem_store.store import Store

ENDINGS = ("", "s", "ed", "ing", "able", "less")
ROOTS = ("walk", "print", "colour", "sort", "paint", "count")


def inflected(n_rows: int) -> list[dict[str, Any]]:
    """Texts of one word that mostly occurs once; its label is its
    root: characters tell it, words do not.
    """
    rng = np.random.default_rng(5)
    rows = []
    for i in range(n_rows):
        root = ROOTS[i % len(ROOTS)]
        letters = "".join(rng.choice(list("qxz"), 6))
        rows.append({"text": f"{letters}{root}{ENDINGS[i % 5]}{letters}", "labels": [root]})
    return rows


def train(
    directory: Path, rows: list[dict[str, Any]], *parameters: str, **options: Any
) -> TrainReport:
    """Train on rows: a label tree, if nothing else is said."""
    data = write_lines(directory / "train.jsonl", rows)
    request = TrainRequest(
        **{"trainer": "label-tree", "data": data, "parameters": parameters, **options}
    )
    return train_and_publish(Store(directory / "store"), "model", request)


def test_auto_takes_characters_where_they_tell_more(tmp_path: Path) -> None:
    found = train(tmp_path, inflected(240), "features.kind=auto", "features.rows=200").features
    assert (found["chosen"], found["rows"], found["held_out"]) == ("words+chars", 200, 40)
    leads = [f"{PLAIN}, first {lead} words 3 times" for lead in LEADS if lead]
    others = [name for name in CANDIDATES if name != PLAIN]
    assert [tried["features"] for tried in found["tried"]] == [PLAIN, *leads, *others]
    precision = {tried["features"]: tried["precision"] for tried in found["tried"]}
    assert precision[found["chosen"]] >= max(precision.values()) - TOLERANCE
    assert found["gained"] == pytest.approx(precision[found["chosen"]] - precision[PLAIN])
    assert found["gained"] > 10
    assert all(0 < tried["features_us"] < tried["us_per_row"] for tried in found["tried"])
    manifest = Store(tmp_path / "store").manifest("model", 1)
    assert manifest.features["kind"] == "words+chars" and manifest.data.rows == 240


@given(
    n_rows=st.integers(ROWS_MIN, 3000),
    rows_max=st.integers(ROWS_MIN, 4000),
    seed=st.integers(0, 1 << 40),
)
def test_blocks_of_neighbours_are_held_out(n_rows: int, rows_max: int, seed: int) -> None:
    held, rest = divide(n_rows, rows_max, seed)
    drawn = min(n_rows, rows_max)
    assert (len(held), len(rest)) == (drawn // 5, drawn - drawn // 5)
    both = np.concatenate([held, rest])
    assert len(np.unique(both)) == drawn and both.min() >= 0 and both.max() < n_rows
    for part in (held, rest):
        assert (np.diff(part) > 0).all()
    n_blocks = 1 + np.count_nonzero(np.diff(held) > 1)
    assert (
        n_blocks <= len(held) // max(1, len(held) // BLOCKS) + 2
    )  # one cut short, one at the file's end
    again = divide(n_rows, rows_max, seed)
    assert all(np.array_equal(one, other) for one, other in zip((held, rest), again, strict=True))


def test_what_only_tells_neighbours_apart_does_not_decide(tmp_path: Path) -> None:
    """Four rows in a row share their label and a word that no others
    have: it tells nothing of new rows.
    """
    by_root = sorted(inflected(3000), key=lambda row: row["labels"])
    groups = [by_root[first : first + 4] for first in range(0, 3000, 4)]
    rows = [
        {"text": f"{row['text']} of{number}", "labels": row["labels"]}
        for number, place in enumerate(np.random.default_rng(2).permutation(len(groups)))
        for row in groups[place]
    ]
    assert train(tmp_path, rows, "features.kind=auto").features["chosen"] == "words+chars"


def test_auto_takes_words_where_they_suffice_and_repeats_itself(tmp_path: Path) -> None:
    rows = [{"text": f"kind{i % 5} of{i % 3} thing", "labels": [str(i % 5)]} for i in range(100)]
    parameters = ("features.kind=auto", "features.lowercase=false")
    runs = [train(tmp_path, rows, *parameters, seed=3).features for _ in range(2)]
    tried = [[(one["features"], one["precision"]) for one in run["tried"]] for run in runs]
    assert tried[0] == tried[1]
    assert runs[0]["chosen"] == "words"
    features = Store(tmp_path / "store").manifest("model", 2).features
    assert (features["kind"], features["lowercase"], features["ngram_max"]) == ("tfidf", False, 1)
    assert runs[0]["gained"] == 0 and "lead" not in features


def test_auto_takes_first_words_where_they_tell_more(tmp_path: Path) -> None:
    """The label is the subject in the first ten words; the words after them are of all subjects."""
    rng = np.random.default_rng(1)
    rows = []
    for i in range(600):
        subject, *others = rng.permutation(12)[:4].tolist()
        first = [f"word{n}" for n in rng.integers(0, 50, 8)]
        first.insert(i % 9, f"subject{subject}")
        text = [*first, "so", *(f"subject{other}" for other in others)]
        rows.append({"text": " ".join(text), "labels": [str(subject)]})
    found = train(tmp_path, rows, "features.kind=auto").features
    assert found["chosen"].endswith(", first 10 words 3 times") and found["gained"] > 1
    features = Store(tmp_path / "store").manifest("model", 1).features
    assert (features["lead"], features["lead_weight"], features["kind"]) == (10, 3, "tfidf")


def test_auto_is_refused_where_it_cannot_choose(tmp_path: Path) -> None:
    named = [{"features": {"a": 1}, "labels": ["x"]}] * 60
    for rows, more, fault in (
        (inflected(49), (), "expected 50 rows or more with auto, found 49"),
        (named, (), "expected texts with auto, found instances of another kind"),
        (inflected(60), ("features.rows=49",), r"features\.rows: expected an integer from 50"),
    ):
        with refused(BadParameter, fault):
            train(tmp_path, rows, "features.kind=auto", *more)


def test_rows_without_features_are_warned_of_above_a_tenth(tmp_path: Path) -> None:
    for n_empty, warnings in (
        (2, None),
        (3, ["3 of 20 training rows have no feature (kind tfidf): nothing is learnt from them"]),
    ):
        rows = [{"text": f"word{i % 4}", "labels": [str(i % 4)]} for i in range(20 - n_empty)]
        rows += [{"text": "! ?", "labels": ["0"]} for _ in range(n_empty)]
        assert train(tmp_path, rows).warnings == warnings
    rows = [{"text": "" if i % 2 else "a word", "labels": [str(i % 4)]} for i in range(20)]
    parameters = ("solver=sgd", "features.kind=hashing")
    assert train(tmp_path, rows, *parameters, trainer="plt", stream=True).warnings == [
        "10 of 20 training rows have no feature (kind hashing): nothing is learnt from them"
    ]


TOPICS = {
    "zh": ("我们在北京大学学习", "他喜欢吃苹果和香蕉", "火车从上海开往南京"),
    "th": ("ฉันเรียนที่มหาวิทยาลัย", "เขาชอบกินแอปเปิลกับกล้วย", "รถไฟไปกรุงเทพทุกวัน"),
    "km": ("ខ្ញុំរៀននៅសាកលវិទ្យាល័យ", "គាត់ចូលចិត្តញ៉ាំផ្លែប៉ោម", "រថភ្លើងទៅភ្នំពេញ"),
    "lo": ("ຂ້ອຍຮຽນຢູ່ມະຫາວິທະຍາໄລ", "ລາວມັກກິນໝາກແອັບເປິ້ນ", "ລົດໄຟໄປວຽງຈັນ"),
}


@pytest.mark.parametrize("language", TOPICS)
@pytest.mark.parametrize("kind", ["tfidf", "chars", "words+chars", "hashing"])
def test_scripts_without_blanks_are_learnt(language: str, kind: str) -> None:
    sentences = TOPICS[language]
    # the runs of training and of the question differ, so that no run as a whole is known
    texts = [sentence[cut:] for cut in range(4) for sentence in sentences]
    labels = [[str(i % 3)] for i in range(len(texts))]
    parameters = {
        "features_kind": kind,
        **({"features_n_features": 4096} if kind == "hashing" else {}),
    }
    model = xylem.train(texts, labels, trainer="ovr", threads=1, **parameters)
    asked = [f"{sentence[5:]}{sentence[1:3]}" for sentence in sentences]
    assert [answer[0][0] for answer in model.predict(asked, 1)] == ["0", "1", "2"]
