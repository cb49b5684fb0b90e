"""What becomes of a combined version: calibrated, with other
concepts, copied, beside another; bad ones.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import serving, settings_of
from tests.helpers.alias_helpers import split
from tests.helpers.combined_models import NAMES, documents, publish_combined
from tests.helpers.datasets_helpers import write_lines

from xylem.admin.registry.remote import RemoteStore
from xylem.base.errors import BadData, BadParameter
from xylem.engine.combined_predictor import make_predictor
from xylem.engine.options import PredictOptions
from xylem.vocabulary.combine import CombineRequest, combine_and_publish
from xylem.vocabulary.combined import NamesToMatch, combined_parts, no_ranker
from xylem.vocabulary.concepts import concepts_of
from xylem.vocabulary.featurizers import featurizer_of
from xylem.vocabulary.names import NameParameters, count_words
from xylem.vocabulary.new_vocabulary import VocabularyRequest, set_vocabulary
from xylem.workflows.calibrate import calibrate_and_publish
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.identifiers import parse_named
from xylem_store.label_info import Subject
from xylem_store.manifest import CALIBRATION
from xylem_store.members import NO_LABEL
from xylem_store.names import all_names, name_of
from xylem_store.origin import read_origin
from xylem_store.store import Store
from xylem_store.version import Model, model_of

TEXTS = [str(row["text"]) for row in documents(40, 8)] + ["salt mine", ""]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a store: version 1 of `both`, 2 is it
    calibrated, 3 has another vocabulary besides.
    """
    home = tmp_path_factory.mktemp("lives")
    store = publish_combined(home)
    calibrate_and_publish(store, "both", "1", write_lines(home / "more.jsonl", documents(300, 11)))
    (home / "others.csv").write_text(
        "uri,label_en\n"
        + "".join(f"l{i},{name}\n" for i, name in enumerate([*NAMES, "lime kiln"]) if i)
    )
    set_vocabulary(store, "both", "latest", VocabularyRequest(home / "others.csv"))
    return home


def predict(model: Model, texts: list[str], top_r: int) -> Any:
    return make_predictor(model).predict(
        featurizer_of(model).transform_texts(texts), PredictOptions(top_r)
    )


def scores_of(store: Store, version: int) -> dict[tuple[int, str], float]:
    model = store.open("both", version)
    found = predict(model, TEXTS, 8)
    row = np.repeat(np.arange(len(TEXTS)), np.diff(found.ptr)).tolist()
    labels = [name_of(model.labels, i) for i in found.labels.tolist()]
    return dict(zip(zip(row, labels, strict=True), found.scores.tolist(), strict=True))


def test_a_calibration_outlives_another_vocabulary(home: Path) -> None:
    store = Store(home / "store")
    before, after, later = (scores_of(store, version) for version in (1, 2, 3))
    assert before.keys() == after.keys() and before != after
    for row in range(len(TEXTS)):
        own = sorted((score, after[at]) for at, score in before.items() if at[0] == row)
        assert [calibrated for _, calibrated in own] == sorted(calibrated for _, calibrated in own)
    stays = [at for at in after if at[1] != "l0" and at in later]
    assert len(stays) > len(TEXTS) and all(label != "l0" for _, label in later)
    close = [later[at] == pytest.approx(after[at], abs=0.2) for at in stays]
    assert np.mean(close) > 0.9  # names have other neighbours, and other words are rare now
    model = store.open("both", 3)
    assert (
        read_origin(model.arrays)[CALIBRATION]
        == read_origin(store.open("both", 2).arrays)[CALIBRATION]
    )
    for version in (1, 2, 3):
        store.verify("both", version)
    arrays = [
        store.root / f"models/both/versions/{i}/arrays/member0.ensemble.parent.npy"
        for i in (1, 2, 3)
    ]
    assert len({path.stat().st_ino for path in arrays}) == 1


def test_rows_that_a_member_has_seen_calibrate_nothing(home: Path) -> None:
    store = Store(home / "store")
    for name in ("train.jsonl", "valid.jsonl"):
        with pytest.raises(BadData, match="rows that the model was not trained on"):
            calibrate_and_publish(store, "both", "1", home / name)


def test_deprecated_concepts_are_never_suggested(home: Path) -> None:
    """Though a member knows them: when it is combined, and with another vocabulary."""
    member = Store(home / "store").open("words", 1)
    subjects = [
        Subject(f"l{i}", None, {"en": name}, deprecated=i == 2) for i, name in enumerate(NAMES)
    ]
    words = NameParameters()
    names = NamesToMatch(concepts_of(subjects, "en"), words, count_words(TEXTS, words))
    parts = combined_parts([member], names, candidates=5, beam_width=3)
    assert sorted(all_names(parts.labels)) == ["l0", "l1", "l3", "l4", "l5", "l6"]
    assert parts.maps[0].tolist().count(NO_LABEL) == 1
    assert any(
        warning.startswith("1 of the members' labels are deprecated") for warning in parts.warnings
    )
    model = model_of(parts.draft(no_ranker(parts), 0, {}))
    assert predict(model, [NAMES[2]], 10).labels.max() < 6


def test_an_object_store_has_it_whole(home: Path, tmp_path: Path) -> None:
    store, there = Store(home / "store"), Store(tmp_path / "there")
    there.prepare()
    remote = RemoteStore(f"file://{tmp_path}/remote")
    pulled = remote.pull(there, "both", remote.push(store, "both", 3))
    there.verify("both", pulled.version)
    assert scores_of(there, pulled.version) == scores_of(store, 3)


async def test_one_answers_beside_another(home: Path) -> None:
    store, found = Store(home / "store"), []
    split(store, "both", canary=(1, 5000))
    body = {"instances": [{"text": "an apple tree and a lime kiln"}], "top_r": 8}
    async with serving(settings_of(store.root)) as (_, client):
        for i in range(40):
            key = {"xylem-canary-key": f"key {i}"}
            answer = (await client.post("/v1/models/both/predict", json=body, headers=key)).json()
            labels = [label["label"] for label in answer["predictions"][0]["labels"]]
            found.append((answer["version"], labels))
    assert {version for version, _ in found} == {1, 3}
    for version, labels in found:
        assert ("l7" in labels, "l0" in labels) == (version == 3, version == 1)


ODD = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix : <http://ex.org/> .
:l0 a skos:Concept ; skos:prefLabel "apple tree"@en ; skos:broader :l1, :l0 ; skos:related :l1 .
:l1 a skos:Concept ; skos:prefLabel "river boat"@en ; skos:broader :l2 .
:l2 a skos:Concept ; skos:prefLabel "steam engine"@en ; skos:broader :l0 .
:letter a skos:Concept ; skos:prefLabel "x"@en .
:many a skos:Concept ; skos:prefLabel "many"@en ; skos:altLabel LABELS .
"""


def test_circles_letters_and_thousands_of_names_are_taken(home: Path) -> None:
    labels = ", ".join(f'"other name {i}"@en' for i in range(3000))
    (home / "odd.ttl").write_text(ODD.replace("LABELS", labels))
    rows = [
        {**row, "labels": [f"http://ex.org/{label}" for label in [*row["labels"], "gone"]]}
        for row in documents(60, 3)
    ]
    store = Store(home / "odd")
    data = write_lines(home / "odd.jsonl", rows)
    train_and_publish(
        store,
        "tree",
        TrainRequest(trainer="label-tree", data=write_lines(home / "t.jsonl", rows[:40])),
    )
    told = combine_and_publish(
        store, "odd", CombineRequest([("tree", 1)], data, home / "odd.ttl", "en")
    )
    assert told["warnings"][0] == "the vocabulary lacks 4 of the members' labels: they are kept"
    store.verify("odd", 1)
    found = predict(store.open("odd"), ["x", "other name 2999", "boat apple river tree"], 9)
    assert np.diff(found.ptr)[1] > 0


@pytest.mark.parametrize(
    ("members", "name", "fault"),
    [
        (["words@1"], "z" * 5000, "at most 4096 bytes, found a longer name"),
        (["words@1"], "x", "vocabulary: expected names with a word of two characters"),
        (["fi@1"], NAMES[0], "expected words of en, found features.stem of fi"),
        (["words@1", "words@latest"], NAMES[0], "expected each version once, found it twice"),
    ],
)
def test_names_and_members_that_cannot_be_used_publish_nothing(
    home: Path, members: Any, name: str, fault: str
) -> None:
    store, names = Store(home / "store"), home / "bad.tsv"
    finnish = TrainRequest(
        trainer="label-tree", data=home / "train.jsonl", parameters=("features.stem=fi",)
    )
    train_and_publish(store, "fi", finnish)
    names.write_text(f"<l0>\t{name}\n<l1>\ty\n")
    request = CombineRequest(
        [parse_named(member) for member in members], home / "valid.jsonl", names, "en"
    )
    with pytest.raises((BadData, BadParameter), match=fault):
        combine_and_publish(store, "bad", request)
    assert store.versions("bad") == ()
