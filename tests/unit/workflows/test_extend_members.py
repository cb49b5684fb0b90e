"""New labels of a combined version: its members learn them, and nothing else is fitted."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import Command
from tests.helpers.combined_models import NAMES, documents
from tests.helpers.datasets_helpers import write_lines

from xylem.base.errors import BadParameter
from xylem.engine.combined_predictor import make_predictor
from xylem.engine.features.combined import members_of
from xylem.engine.predictor import PredictOptions
from xylem.vocabulary.combine import CombineRequest, combine_and_publish
from xylem.vocabulary.featurizers import featurizer_of
from xylem.workflows.extend import extend_and_publish
from xylem.workflows.going_on import read_kept
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.checks import LABEL_COUNTS
from xylem_store.names import all_names
from xylem_store.near import assemble_near
from xylem_store.origin import read_origin, read_report
from xylem_store.store import Store
from xylem_store.version import Model

MONDAY = "quiet late far n1 n2 n3 n4"
NEW = [{"text": MONDAY, "labels": ["monday"]}] * 6
SALT = [{"text": "salt mine in spring", "labels": ["l6"]}] * 6


def pairs(n: int) -> list[dict[str, Any]]:
    """Texts whose label two words say together: similar rows know it better than a tree."""
    draw = np.random.default_rng(5)
    rows = []
    for _ in range(n):
        a, b, *noise = draw.integers(6, size=2).tolist() + draw.integers(40, size=3).tolist()
        words = [f"a{a}", f"b{b}", *(f"n{word}" for word in noise)]
        rows.append({"text": " ".join(words), "labels": [f"l{(a + b) % 6}"]})
    return rows


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A combined version of members that keep rows, have none, and cannot be extended."""
    home = tmp_path_factory.mktemp("extended")
    store = Store(home / "store")
    data = write_lines(home / "train.jsonl", documents(150, 1))
    valid = write_lines(home / "valid.jsonl", documents(110, 2))
    write_lines(home / "new.jsonl", NEW + SALT)
    write_lines(home / "more.jsonl", [{"text": "loud early tall", "labels": ["tuesday"]}] * 4)
    names = home / "names.csv"
    names.write_text("uri,label_en\n" + "".join(f"l{i},{name}\n" for i, name in enumerate(NAMES)))
    for name, fields in {
        "words": {"trainer": "label-tree", "keep_rows": True},
        "chars": {"trainer": "label-tree", "parameters": ("features.kind=chars",)},
        "leaves": {"trainer": "fastxml", "parameters": ("trees=1",)},
        "near": {"trainer": "label-tree", "keep_rows": True, "rerank": True},
    }.items():
        rows = write_lines(home / "pairs.jsonl", pairs(400)) if name == "near" else data
        train_and_publish(store, name, TrainRequest(data=rows, **fields))
    members = [(name, 1) for name in ("words", "chars", "leaves")]
    request = CombineRequest(members, valid, names, "en", beam_width=10)
    combine_and_publish(store, "both", request)
    combine_and_publish(store, "restless", CombineRequest(members[1:], valid, beam_width=10))
    return home


def extend(home: Path, model: str, data: str, *rows: Path) -> tuple[Any, Model]:
    store = Store(home / "store")
    request = TrainRequest(trainer="", data=home / data, base=model, rows=rows)
    return extend_and_publish(store, model, request), store.open(model)


def best(model: Model, text: str, top_r: int = 1) -> list[str]:
    """Return the best labels of a text."""
    rows = featurizer_of(model).transform_texts([text])
    labels = make_predictor(model).predict(rows, PredictOptions(top_r=top_r)).labels
    return [all_names(model.labels)[label] for label in labels]


def test_members_learn_labels_and_nothing_else_is_fitted(home: Path) -> None:
    old = Store(home / "store").open("both", 1)
    report, model = extend(home, "both", "new.jsonl")
    assert report.grown["labels_added"] == 2 and report.trainer == "combine"
    assert [warning.partition(": extend")[0] for warning in report.warnings] == [
        f"member {name}@1 stays as it is" for name in ("chars", "leaves")
    ]
    assert "expected --rows" in report.warnings[0] and "one of fastxml" in report.warnings[1]
    assert all_names(model.labels) == [*all_names(old.labels), "monday"]
    assert best(model, "salt mine in spring") == ["l6"]
    assert "monday" in best(model, MONDAY, top_r=2)  # two of three members do not propose it
    assert model.arrays[LABEL_COUNTS].tolist() == [*old.arrays[LABEL_COUNTS][:6].tolist(), 6, 6]
    same = [name for name in old.arrays if name.startswith(("ranker/t", "ranker/v", "names/"))]
    same += [name for name in old.arrays if name.startswith(("member1/", "member2/"))]
    assert all(np.array_equal(old.arrays[name], model.arrays[name]) for name in same)
    first = members_of(model)[0]
    assert first.manifest.full_name == "words@1"
    assert read_origin(first.arrays)["parent"]["model"] == "words"
    assert read_origin(model.arrays)["parent"]["version"] == 1
    assert read_report(model.arrays)["extended"] == report.grown
    stored_rows = read_kept(first)
    assert stored_rows is not None and stored_rows.n_rows == 150 + len(NEW) + len(SALT)


def test_the_command_extends_members_with_rows_of_a_file(home: Path, command: Command) -> None:
    files = "--data", home / "more.jsonl", "--rows", home / "train.jsonl"
    status, out, complaint = command("extend", "both", *files, "--json", store=home / "store")
    report = json.loads(out.splitlines()[-1])
    assert status == 0 and complaint.count("\n") == 1 and "leaves@1 stays" in complaint
    assert report["grown"]["labels_added"] == 2  # one of each other member
    assert best(Store(home / "store").open("both"), "loud early tall") == ["tuesday"]


def test_near_rows_of_new_labels_are_drawn(home: Path) -> None:
    _, model = extend(home, "near", "new.jsonl")
    near = assemble_near(model.manifest.n_labels, model.arrays)
    assert np.diff(near.label_ptr)[-2:].tolist() == [6, 6]
    assert best(model, MONDAY) == ["monday"]


def test_members_without_rows_are_all_refused(home: Path) -> None:
    with pytest.raises(BadParameter, match=r"found none: member chars@1 stays as it is: .*rows"):
        extend(home, "restless", "new.jsonl")
    assert Store(home / "store").versions("restless") == (1,)
