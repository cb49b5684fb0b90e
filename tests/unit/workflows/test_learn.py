"""A recipe is run again and again: which rows teach and judge, and what is promoted."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.combined_models import NAMES
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.distinct_documents import distinct_documents
from tests.helpers.recipes import recipe_in
from tests.helpers.small_models import small_draft
from tests.helpers.tiny_encoders import write_encoder

import xylem
from xylem.base.db.of_store import opened_database
from xylem.base.errors import BadData
from xylem.base.progress import OnProgress, no_progress
from xylem.extras.encoder.encoder import Encoder, read_encoder
from xylem.thresholds.store.state import ThresholdDatabase
from xylem.workflows import learn as learning
from xylem.workflows.learn import LearnRequest, LearnWork, learn_and_publish
from xylem.workflows.learning_rows import digest_of
from xylem.workflows.recipe import Recipe
from xylem_store.errors import Conflict, EncoderNotFound
from xylem_store.origin import (
    MADE_FOR,
    ORIGIN,
    REPORT,
    json_array,
    read_origin,
    read_report,
)
from xylem_store.store import Store
from xylem_store.version import draft_of


def run(
    store: Store,
    recipe: Recipe,
    feedback: list[dict[str, Any]] | None = None,
    on_progress: OnProgress = no_progress,
    job: str | None = None,
) -> Any:
    """Run a recipe with rows of feedback; return the report."""
    lines = [json.dumps(row).encode() for row in feedback or []]
    files = {name: Path(name) for name in recipe.files}
    request = LearnRequest(recipe, files, lines, until=7.0, job=job)
    with opened_database(store.root, create=True) as database:
        return learn_and_publish(store, "m", request, ThresholdDatabase(database), on_progress)


def test_a_second_run_learns_what_is_new_beside_the_first(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    titles = write_lines(tmp_path / "titles.jsonl", distinct_documents(60, 3))
    sources = [
        {"file": str(tmp_path / "documents.jsonl")},
        {"file": str(titles), "role": "members"},
    ]
    recipe = recipe_in(tmp_path, sources=sources, thresholds="instance")
    first = run(store, recipe)
    assert first["promotion"] == {
        "promoted": True,
        "reasons": ["it is the first version of the model"],
    }
    judge, weak, feedback = first["sources"]
    assert judge["learnt"] + judge["held_out"] + judge["left_out"] == 340
    assert (weak["members"], feedback["rows"]) == (60, 0)
    figure = first["judges"]["figures"]["F1@5"]
    assert figure["a"] == 0 < figure["low"] < figure["b"] == figure["difference"]
    assert (first["concepts"]["new"], first["concepts"]["by_name"]) == (6, 1)

    corrected = [{"event_id": str(i), **row} for i, row in enumerate(distinct_documents(40, 9))]
    corrected[0]["labels"] = ["l6"]
    second = run(store, recipe, corrected)
    assert second["judges"]["rows"] == first["judges"]["rows"]
    assert second["judges"]["figures"]["F1@5"]["a"] == pytest.approx(figure["b"])
    feedback = second["sources"][2]
    assert feedback["learnt"] + feedback["held_out"] == 40
    assert second["corrections"]["rows"] + second["corrections"]["twins"] == feedback["held_out"]
    assert (second["concepts"]["new_names"], second["concepts"]["by_name"]) == (["l6"], 0)
    (reason,) = second["promotion"]["reasons"]
    assert reason.startswith("F1@5: expected an upper end of the change's interval of at least +0")

    arrays = store.open("m", 2).arrays
    assert read_report(arrays)["learning"]["judges"] == second["judges"]
    origin = read_origin(arrays)
    assert origin["recipe"]["vocabulary"] == "names.csv" and origin["feedback"] == {"m": 7.0}
    assert str(tmp_path) not in json.dumps(origin)
    with opened_database(store.root) as database:
        tuned = ThresholdDatabase(database).load("m", 2)
    assert tuned is not None and tuned.aim.objective == "instance"


def test_too_few_documents_judge_nothing_and_promote_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    recipe = recipe_in(tmp_path, n=150)
    first, second = (run(store, recipe) for _ in range(2))
    assert first["promotion"]["promoted"] and not second["promotion"]["promoted"]
    (reason,) = second["promotion"]["reasons"]
    assert reason.startswith("expected at least 30 held-out documents to measure on, found 2")
    assert (second["version"], store.resolve("m"), second["metrics"]) == (2, 1, {})


def test_a_worse_version_is_published_and_not_promoted(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    run(store, recipe_in(tmp_path))
    rule = {"metric": "P@1", "part": "difference", "least_change": 90.0}
    report = run(store, recipe_in(tmp_path, promotion=rule))
    assert not report["promotion"]["promoted"] and report["version"] == 2
    assert store.resolve("m") == 1


@pytest.mark.parametrize(
    ("part", "least_change", "promoted"),
    [
        ("high", 0.0, True),  # the fall may be chance
        ("high", 1.5, False),
        ("difference", -2.0, True),
        ("difference", -0.5, False),
        ("low", -5.0, True),
        ("low", -0.5, False),  # the version may be worse by more than half a point
    ],
)
def test_a_rule_reads_a_part_of_the_change(
    tmp_path: Path, part: str, least_change: float, promoted: bool
) -> None:
    rule = {"metric": "F1@5", "part": part, "least_change": least_change}
    recipe = recipe_in(tmp_path, promotion=rule)
    store = Store(tmp_path / "store")
    version = store.publish("m", small_draft(4))
    figure = {"a": 40.0, "b": 38.7, "difference": -1.3, "low": -4.3, "high": 1.3}
    work = LearnWork(
        store=store,
        model="m",
        request=LearnRequest(recipe, {}),
        on_progress=no_progress,
        database=None,  # type: ignore[arg-type]  # no decision is stored
        chosen=recipe.training(1).chosen(),
        old=store.open("m", version.version),
        report={"judges": {"rows": 49, "figures": {"F1@5": figure}}},
    )
    verdict = learning.decide(work).report["promotion"]
    assert verdict["promoted"] is promoted
    assert "found a change of -1.30, from 40.00 to 38.70" in verdict["reasons"][0]


@pytest.mark.parametrize("stage", ["measure", "publish"])
def test_a_refused_run_keeps_its_last_verdict(tmp_path: Path, stage: str) -> None:
    """Somebody moves `latest` while versions are compared, or once the new one is published."""
    store = Store(tmp_path / "store")
    recipe = recipe_in(tmp_path, thresholds="instance")
    run(store, recipe)
    others = store.publish("m", draft_of(store.open("m")), latest=False)

    def move(now: str, done: int, _: int) -> None:
        if (now, done) == (stage, 1) and store.resolve("m") == 1:
            store.promote("m", others.version)

    report = run(store, recipe, on_progress=move)
    verdict = {"promoted": False, "reasons": ["latest moved to 2 while the versions were compared"]}
    assert report["promotion"] == verdict and store.resolve("m") == 2
    assert store.versions("m") == (1, 2, report["version"])
    version = store.open("m", report["version"])
    assert read_report(version.arrays)["learning"]["promotion"] == verdict
    with opened_database(store.root) as database:
        tuned = ThresholdDatabase(database).load("m", report["version"], version.manifest.digest)
    assert tuned is not None


class Killed(BaseException):
    """What ends a run in the middle."""


def killed_when_published(stage: str, done: int, _: int) -> None:
    if (stage, done) == ("publish", 1):
        raise Killed


def test_a_job_that_was_killed_goes_on_after_its_publication(tmp_path: Path) -> None:
    """Trained again, it would be compared with itself once `latest` names it."""
    store = Store(tmp_path / "store")
    recipe = recipe_in(tmp_path, thresholds="instance")
    run(store, recipe)
    with pytest.raises(Killed):
        run(store, recipe, on_progress=killed_when_published, job="j")
    assert (store.versions("m"), store.resolve("m")) == ((1, 2), 1)
    stages = set[str]()
    second = run(store, recipe, on_progress=lambda stage, *_: stages.add(stage), job="j")
    assert not stages & {"fit", "measure", "publish"}
    assert (second["version"], second["baseline"], store.resolve("m")) == (2, 1, 2)
    assert second["promotion"]["reasons"][0].startswith("F1@5: expected an upper end")
    with opened_database(store.root) as database:
        assert ThresholdDatabase(database).load("m", 2) is not None
    # its process ended before the job was told to be done
    assert run(store, recipe, job="j") == second
    store.promote("m", 1)  # somebody has gone back meanwhile
    store.publish("m", draft_of(store.open("m")))
    refused = run(store, recipe, job="j")
    assert (refused["promotion"]["promoted"], store.resolve("m")) == (False, 3)
    assert store.versions("m") == (1, 2, 3)


def test_a_job_goes_on_after_a_publication_by_an_older_release(tmp_path: Path) -> None:
    """Its report does not say which version it was compared with: it was the parent."""
    store = Store(tmp_path / "store")
    recipe = recipe_in(tmp_path)
    run(store, recipe)
    with pytest.raises(Killed):
        run(store, recipe, on_progress=killed_when_published, job="j")
    version = store.open("m", 2)
    report = read_report(version.arrays)
    assert report["learning"].pop("baseline") == 1
    extra = {name: version.arrays[name] for name in (ORIGIN, MADE_FOR)}
    extra[REPORT] = json_array(REPORT, report)
    draft = draft_of(version)
    store.delete("m", 2)
    store.publish("m", replace(draft, extra={**draft.extra, **extra}), latest=False)
    second = run(store, recipe, job="j")
    assert (second["version"], second["baseline"], store.resolve("m")) == (3, 1, 3)


def test_a_first_run_that_was_killed_is_tuned_by_the_next_one(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    recipe = recipe_in(tmp_path, n=150, thresholds="instance")
    with pytest.raises(Killed):
        run(store, recipe, on_progress=killed_when_published)
    with opened_database(store.root, create=True) as database:
        thresholds = ThresholdDatabase(database)
        assert store.resolve("m") == 1 and thresholds.load("m", 1) is None
        run(store, recipe)  # too few documents judge: version 1 goes on
        assert store.resolve("m") == 1
        assert thresholds.load("m", 1) is not None is not thresholds.load("m", 2)


def test_a_version_with_an_alias_is_not_withdrawn(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    recipe = recipe_in(tmp_path)
    run(store, recipe)

    def move(now: str, done: int, _: int) -> None:
        if (now, done) == ("publish", 1) and store.versions("m") == (1, 2):
            store.promote("m", 2)

    report = run(store, recipe, on_progress=move)
    assert (report["version"], store.versions("m"), store.resolve("m")) == (3, (1, 2, 3), 2)
    assert not report["promotion"]["promoted"]


def test_a_recipe_may_take_the_first_of_two_names(tmp_path: Path) -> None:
    """Without first_name a vocabulary with two preferred names of a concept is refused."""
    recipe = recipe_in(tmp_path)
    concepts = (
        f'<x:l{i}> a skos:Concept; skos:notation "l{i}"; skos:prefLabel "{name}"@en, "z{i}"@en .'
        for i, name in enumerate(NAMES)
    )
    prefix = "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n"
    (tmp_path / "names.ttl").write_text(prefix + "\n".join(concepts))
    recipe = recipe.model_copy(
        update={"vocabulary": str(tmp_path / "names.ttl"), "key_kind": "notation"}
    )
    store = Store(tmp_path / "store")
    with pytest.raises(BadData, match="--first-name takes the first one"):
        run(store, recipe)
    run(store, recipe.model_copy(update={"first_name": True}))
    info = store.label_info("m")
    assert info is not None and info.find_subjects([NAMES[0]])[NAMES[0]]


def test_twins_of_learnt_rows_do_not_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "ALIKE", 0.0)
    report = run(Store(tmp_path / "store"), recipe_in(tmp_path))
    assert report["judges"]["rows"] == 0 < report["judges"]["twins"]


def test_the_newest_labels_of_a_text_win() -> None:
    assert digest_of(" An  apple TREE\n") == digest_of("an apple tree")


def test_a_run_that_cannot_begin_leaves_what_is_served(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    recipe = recipe_in(tmp_path)
    run(store, recipe)
    with learning._alone(store, "m"), pytest.raises(Conflict, match="one run of its recipe"):
        run(store, recipe)
    (tmp_path / "documents.jsonl").unlink()
    with pytest.raises(BadData, match=r"found not: .*documents.jsonl"):
        run(store, recipe)
    other = recipe_in(tmp_path)
    Path(other.vocabulary).write_text("uri,label_en\nx,something else\n")
    with pytest.raises(BadData, match="expected concepts that are labels of the members"):
        run(store, other)
    assert store.versions("m") == (1,) and store.resolve("m") == 1


def test_an_encoder_of_a_recipe_encodes_each_text_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    store.prepare()
    parameters = {"features.kind": "tfidf", "features.encoder": "tiny", "vectors.dims": 0}
    recipe = recipe_in(tmp_path, parameters=parameters, near=True)
    with pytest.raises(EncoderNotFound, match="tiny"):
        run(store, recipe)
    arrays, _ = read_encoder(write_encoder(tmp_path / "tiny"))
    store.encoders.add("tiny", arrays)
    texts = list[str]()
    encode = Encoder.encode

    def counted(encoder: Encoder, text: str) -> Any:
        if text not in encoder.vectors and not text.startswith("a a a"):
            texts.append(text)
        return encode(encoder, text)

    monkeypatch.setattr(Encoder, "encode", counted)
    corrected = distinct_documents(40, 9)
    run(store, recipe, corrected)
    assert 340 < len(texts) == len(set(texts)) <= 380
    member = store.open("m", 1).manifest.members[0]
    assert member.features["vectors.encoder"] == "tiny"
    texts.clear()
    second = run(store, recipe, corrected)
    assert not texts and second["judges"]["figures"]["P@1"]["difference"] == 0
    with pytest.raises(Killed):
        run(store, recipe, corrected, killed_when_published, job="j")
    shutil.rmtree(store.root / "encoded")
    assert run(store, recipe, corrected, job="j")["version"] == 3
    assert not texts, "a job that goes on after its publication needs no vectors"
    predicted = xylem.load(str(store.root), "m").predict(["a text that nobody has sent"])
    assert predicted[0]
