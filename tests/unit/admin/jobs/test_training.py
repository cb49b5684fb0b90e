"""What jobs do, in this process: they publish once, tune, promote,
go on with batches, see data change.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.jobs_helpers import N_LABELS, TRAINING, Desk, settings_for, write_data

from xylem.admin.jobs.context import JobContext
from xylem.admin.jobs.files import OFFSET, PART, RESULT
from xylem.admin.jobs.job import Job, PromotionVerdict
from xylem.admin.jobs.kinds import METRICS, run_job
from xylem.admin.jobs.leases import ClaimLost
from xylem.admin.jobs.promotion import judge_conditions
from xylem.admin.jobs.requests import PromotionCondition
from xylem.admin.jobs.sources import split_lines
from xylem.base import no_progress
from xylem.base.errors import BadData
from xylem.datasets import read_dataset
from xylem.thresholds.store.codec import Tuned
from xylem.thresholds.store.state import ThresholdDatabase
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.errors import VersionNotFound
from xylem_store.label_info import Subject, build_label_info
from xylem_store.names import all_names
from xylem_store.origin import read_origin
from xylem_store.store import Store

At = Callable[[str], None] | None
"""What is called at the beginning of each phase of a job."""


def train_plainly(directory: Path) -> None:
    """Publish a version of m that no job made."""
    request = TrainRequest(
        trainer="label-tree", data=directory / "data" / "train.jsonl", parameters=("trees=1",)
    )
    train_and_publish(Store(directory / "store"), "m", request)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a store that has a version of model m, and its data. Not to be changed."""
    directory = tmp_path_factory.mktemp("trained")
    settings_for(directory)
    train_plainly(directory)
    return directory


class Place:
    """A store with its jobs: runs them in this process, as their processes would."""

    def __init__(self, directory: Path) -> None:
        self.desk = Desk(settings_for(directory))
        self.store = Store(self.desk.settings.store)
        self.data = directory / "data"
        self.phases: list[str] = []

    def submit(self, kind: str, request: dict[str, Any]) -> str:
        return self.desk.jobs.submit(kind, request).id

    def run(self, job_id: str, at: At = None) -> Job:
        """Claim the job, run it, and let it have succeeded."""
        context = self.claimed(job_id, at)
        result = run_job(context)
        self.desk.leases.succeed(context.claim, result)
        return self.desk.jobs.get(job_id)

    def die(self, job_id: str, phase: str, after: str = "") -> None:
        """Run the job as a process that dies when a phase begins,
        after another one if one is named.
        """

        def at(now: str) -> None:
            if now == phase and (not after or after in self.phases):
                raise Killed

        with pytest.raises(Killed):
            self.run(job_id, at)
        self.desk.end_lease(job_id)

    def do(self, kind: str, request: dict[str, Any], at: At = None) -> Job:
        """Submit a job and run it."""
        return self.run(self.submit(kind, request), at)

    def train(self, at: At = None, **changes: Any) -> Job:
        return self.do("training", {**TRAINING, **changes}, at)

    def batch(self, **request: Any) -> Job:
        return self.do("batch", {"model": "m", **request})

    def predictions(self, job: Job) -> list[Any]:
        """The answers of a batch, without the ids, of which no two are alike."""
        lines = self.desk.jobs.result_file(job.id).read_bytes().splitlines()
        return [{**json.loads(line), "prediction_id": None} for line in lines]

    def tuned(self, model: str, version: int) -> Tuned | None:
        return ThresholdDatabase(self.desk.database).load(model, version)

    def claimed(self, job_id: str, at: At = None) -> JobContext:
        claim = self.desk.claim()
        assert claim.job.id == job_id

        def told(phase: str, done: int, total: int) -> None:
            if self.phases[-1:] != [phase]:
                self.phases.append(phase)
                if at is not None:
                    at(phase)

        return self.desk.context(claim, self.store, told)


@pytest.fixture
def place(trained: Path, tmp_path: Path) -> Iterator[Place]:
    for name in ("store", "data"):
        shutil.copytree(trained / name, tmp_path / name)
    made = Place(tmp_path)
    yield made
    made.desk.database.close()


class Killed(BaseException):
    """The process of a job dies here."""


def rule(alias: str, *conditions: tuple[str, float]) -> dict[str, Any]:
    return {
        "alias": alias,
        "if": [{"metric": name, "least_change": change} for name, change in conditions],
    }


ANYWAY = rule("latest", ("P@1", -100.0))
"""A rule that holds, after both versions were measured."""


def test_a_training_publishes_a_version_that_says_whose_it_is_calibrated_on_what_was_split_off(
    place: Any,
) -> None:
    write_data(place.data / "many.jsonl", 400, seed=3, noise=0.4)
    job = place.train(data="many.jsonl", valid=None, split=0.4, calibrate=True)
    assert (job.state, job.version, job.promotion) == ("succeeded", 2, None)
    assert place.store.resolve("m") == 2
    assert place.store.published("m", job.id) == place.store.manifest("m", 2)
    assert job.result["metrics"]["P@1"] > 50 and 200 < job.result["rows"] < 280
    origin = read_origin(place.store.open("m", 2).arrays)
    assert (origin["job"], origin["calibration"]["rows"] >= 100) == (job.id, True)


@pytest.mark.parametrize("died", [False, True])
def test_a_training_tells_its_warnings_and_the_features_that_were_tried(
    place: Place, died: bool
) -> None:
    with (place.data / "train.jsonl").open("a") as file:
        file.write(40 * '{"text": "", "labels": ["label0"]}\n')
    parameters = {"trees": 1, "features.kind": "auto", "features.rows": 100}
    request = {**TRAINING, "parameters": parameters, "thresholds": {"method": "fta"}}
    job_id = place.submit("training", request)
    if died:
        place.die(job_id, "estimates")
    result = place.run(job_id).result
    kind = place.store.manifest("m", 2).features["kind"]
    told = f"40 of 240 training rows have no feature (kind {kind}): nothing is learnt from them"
    assert result["warnings"] == [told]
    first = result["features"]["tried"][0]
    assert first["features"] == "words" and "us_per_row" not in first


def test_thresholds_are_tuned_before_the_version_is_served(place: Place) -> None:
    def at(phase: str) -> None:
        if phase == "estimates":
            assert place.store.resolve("m") == 1

    job = place.train(at, thresholds={"method": "fta"})
    assert "estimates" in place.phases
    assert place.tuned("m", 2).method == "fta"
    assert place.store.resolve("m") == 2 and job.promotion.promoted


@pytest.mark.parametrize(
    ("conditions", "promoted"),
    [
        ((("P@5", -0.2), ("macro_f", 0.0)), True),
        ([(metric, -100.0) for metric in METRICS], True),
        ((("P@1", 0.01),), False),
        ((("P@1", -100.0), ("PSP@3", 0.01)), False),
        ((), True),
    ],
)
def test_an_alias_moves_if_the_rule_says_so(
    place: Place, conditions: tuple[tuple[str, float], ...], promoted: bool
) -> None:
    verdict = place.train(promotion=rule("latest", *conditions)).promotion
    assert (verdict.baseline, verdict.promoted) == (1, promoted), verdict
    assert len(verdict.reasons) == max(len(conditions), 1)
    assert place.store.versions("m") == (1, 2)
    assert place.store.resolve("m") == (2 if promoted else 1)


def test_a_rule_for_no_alias_moves_none(place: Place) -> None:
    job = place.train(promotion={"alias": None})
    assert (job.state, job.version, job.promotion) == ("succeeded", 2, None)
    assert place.store.info("m").aliases == {"latest": 1}
    place.train(model="first", promotion={"alias": None})
    assert place.store.info("first").aliases == {"latest": 1}


@pytest.mark.parametrize("alias", ["stable", "latest"])
def test_without_a_version_to_compare_with_the_first_is_promoted_and_says_so(
    place: Place, alias: Any
) -> None:
    verdict = place.train(model="new", promotion=rule(alias, ("P@1", 5.0))).promotion
    assert (
        verdict.promoted and verdict.baseline is None and "no other version" in verdict.reasons[0]
    )
    assert place.store.resolve("new", alias) == 1


def test_a_version_that_cannot_be_opened_is_not_replaced_by_a_rule(place: Place) -> None:
    array = next((place.store.root / "models/m/versions/1/arrays").iterdir())
    array.chmod(0o644)
    array.write_bytes(array.read_bytes()[:-1] + b"?")
    verdict = place.train(promotion=ANYWAY).promotion
    assert not verdict.promoted and "expected to measure version 1" in verdict.reasons[0]
    assert place.store.resolve("m") == 1


def test_conditions_tell_each_figure_and_need_both() -> None:
    conditions = [
        PromotionCondition(metric="P@5", least_change=-0.2),
        PromotionCondition(metric="PSP@1"),
    ]
    judge = partial(judge_conditions, conditions, {"P@5": 40.0, "PSP@1": 3.0})
    holds, reasons = judge({"P@5": 40.2, "PSP@1": 3.0})
    assert holds and "from 40.20 to 40.00" in reasons[0]
    holds, reasons = judge({"P@5": 40.21, "PSP@1": None})
    assert (
        not holds
        and "not enough" in reasons[0]
        and "no such figure of the one before" in reasons[1]
    )


@pytest.mark.parametrize(
    "phase", ["read", "report", "publish", "estimates", "measure ofo", "decide"]
)
def test_a_training_that_died_in_any_phase_is_finished_by_the_next_worker(
    place: Place, phase: str
) -> None:
    request = {
        **TRAINING,
        "thresholds": {"method": "ofo"},
        "promotion": rule("latest", ("P@5", -100.0)),
    }
    job_id = place.submit("training", request)

    # the figures of the training are decided on before
    place.die(job_id, phase, after="measure ofo" if phase == "decide" else "")
    job = place.run(job_id)
    assert place.store.versions("m") == (1, 2)
    assert (job.version, job.attempts, place.store.resolve("m")) == (2, 2, 2)
    with place.desk.database.read() as connection:
        epoch = connection.exec_driver_sql("SELECT epoch FROM threshold_versions").scalar_one()
    assert epoch == 1  # tuned once


def test_a_worker_that_lost_its_job_publishes_nothing_besides(place: Place) -> None:
    job_id = place.submit("training", {**TRAINING, "thresholds": {"method": "ofo"}})

    def at(phase: str) -> None:
        if phase == "publish" and place.desk.jobs.get(job_id).attempts == 1:
            place.desk.end_lease(job_id)
            place.run(job_id)  # another worker, from beginning to end

    with pytest.raises(ClaimLost):
        place.run(job_id, at)
    assert place.store.versions("m") == (1, 2)
    assert place.desk.jobs.get(job_id).state == "succeeded"


def rows_of_strangers(path: Path, n_known: int, n_rows: int = 40) -> Path:
    """Rows of which so many have a label that the versions of these
    tests know; the others have new ones.
    """
    lines = [{"text": f"first{i % 3} word1", "labels": [f"label{i % 3}"]} for i in range(n_known)]
    lines += [{"text": "first0 word1", "labels": [f"strange{i}"]} for i in range(n_rows - n_known)]
    return write_lines(path, lines)


UNCHANGED = rule("latest", ("P@5", 0.0))


@pytest.mark.parametrize("kind", ["training", "extend", "combine", "vocabulary"])
def test_nothing_is_promoted_on_rows_whose_labels_neither_version_knows(
    place: Place, kind: str
) -> None:
    rows_of_strangers(place.data / "strange.jsonl", 0)
    gate = {"valid": "strange.jsonl", "promotion": UNCHANGED}
    (place.data / "names.csv").write_text(VOCABULARY)
    if kind == "training":
        job = place.train(**gate)
    elif kind == "extend":
        place.train(model="kept", keep_rows=True)
        write_lines(place.data / "new.jsonl", [{"text": "word0 word1", "labels": ["brand new"]}])
        job = place.do("extend", {"model": "kept", "data": "new.jsonl", **gate})
    else:
        combination = {**COMBINE, "data": "valid.jsonl"}
        place.do("combine", combination)
        vocabulary = {"model": "both", "vocabulary": "names.csv"}
        job = place.do(kind, {**(combination if kind == "combine" else vocabulary), **gate})
    verdict = job.promotion
    assert not verdict.promoted and verdict.baseline == 1, verdict
    told = "; ".join(verdict.reasons)
    assert "from 0.00 to 0.00" in told
    assert (
        "expected at least 10 validation rows with a label that the new version has learnt, found 0"
        in told
    )
    for version in (1, 2):
        shown = f"{job.model}@{version} has not learnt, as 'strange0': each counts as missed"
        assert f"40 of 40 validation rows have only labels that {shown}" in told
    assert place.store.resolve(job.model) == 1


@pytest.mark.parametrize(("n_known", "promoted"), [(9, False), (10, True)])
def test_a_promotion_needs_ten_rows_with_a_label_that_the_new_version_has_learnt(
    place: Place, n_known: int, promoted: bool
) -> None:
    rows_of_strangers(place.data / "strange.jsonl", n_known)
    verdict = place.train(valid="strange.jsonl", promotion=UNCHANGED).promotion
    assert verdict.promoted == promoted, verdict
    assert any(
        reason.startswith(f"{40 - n_known} of 40 validation rows") for reason in verdict.reasons
    )


@pytest.mark.parametrize("trainer", ["label-tree", "fastxml"])
def test_labels_that_are_listed_and_were_never_learnt_are_not_known(
    place: Place, trainer: str
) -> None:
    lines = "".join(f"{i % 3} {i % 3}:1 {4 + i % 2}:1\n" for i in range(60))
    (place.data / "rows.txt").write_text(f"60 6 4\n{lines}")
    (place.data / "listed.txt").write_text("20 6 4\n" + "3 3:1\n" * 20)
    numbers = {"trainer": trainer, "model": "numbers", "data": "rows.txt", "valid": "listed.txt"}
    for _ in range(2):
        job = place.train(**numbers, promotion=UNCHANGED)
    assert not job.promotion.promoted and "found 0" in "; ".join(job.promotion.reasons), (
        job.promotion
    )


def test_a_verdict_says_who_was_trained_on_the_rows_that_it_is_measured_on(place: Place) -> None:
    verdict = place.train(valid="train.jsonl", promotion=ANYWAY).promotion
    told = [reason for reason in verdict.reasons if "was trained on the validation rows" in reason]
    assert [reason.split()[0] for reason in told] == ["m@2", "m@1"]
    other = write_data(place.data / "other.jsonl", 120, seed=3)
    first = {**COMBINE, "vocabulary": None, "language": None, "data": other.name}
    place.do("combine", first)
    gate = {"valid": "train.jsonl", "promotion": rule("latest", ("P@1", -100.0))}
    told = place.do("combine", {**first, **gate}).promotion.reasons
    assert any(reason.startswith("both@2 was trained on the validation rows") for reason in told), (
        told
    )
    clean = place.train(valid="valid.jsonl", promotion=ANYWAY).promotion
    assert not any("trained on" in reason for reason in clean.reasons)


def test_a_verdict_is_acted_on_once_and_undoes_nobodys_decision(place: Place) -> None:
    job_id = place.submit("training", {**TRAINING, "promotion": rule("latest")})
    place.die(job_id, "publish")
    run_job(place.claimed(job_id))  # all is done, but nobody was told
    assert place.store.resolve("m") == 2
    place.store.promote("m", 1)  # an admin's decision
    train_plainly(place.data.parent)
    place.desk.end_lease(job_id)
    job = place.run(job_id)
    assert job.promotion == PromotionVerdict(True, job.promotion.reasons, "latest", 1)
    assert place.store.resolve("m") == 3


VOCABULARY = "uri,label_en\n" + "".join(f"label{i},first{i}\n" for i in range(N_LABELS))
COMBINE = {"model": "both", "members": ["m@1"], "vocabulary": "names.csv", "language": "en"}


@pytest.mark.parametrize("phase", [None, "read", "publish", "decide"])
def test_a_combination_and_its_next_vocabulary_are_published_once(
    place: Place, phase: str | None
) -> None:
    (place.data / "names.csv").write_text(VOCABULARY)
    (place.data / "more.csv").write_text(VOCABULARY + "label9,word7\n")
    write_data(place.data / "other.jsonl", 120, seed=3)
    tuned = {
        "valid": "valid.jsonl",
        "thresholds": {"method": "sto"},
        "promotion": rule("stable", ("P@1", 0)),
    }
    wanted = [
        ("combine", {**COMBINE, **tuned, "data": "other.jsonl"}),
        ("vocabulary", {"model": "both", "vocabulary": "more.csv", **tuned}),
    ]
    for number, (kind, request) in enumerate(wanted, 1):
        job_id = place.submit(kind, request)
        if phase is not None:
            place.die(job_id, phase)
        done = place.run(job_id)
        assert done.version == number and done.promotion.promoted
        assert done.result["combined"]["members"].keys() == {"m@1"}
        assert place.store.versions("both") == tuple(range(1, number + 1))
        assert place.store.label_info("both").head.n_subjects == N_LABELS + number - 1
        assert read_origin(place.store.open("both", number).arrays)["job"] == job_id
        assert place.tuned("both", number) is not None
    moved = place.store.moves("both")[-1]
    assert (moved.alias, moved.who) == ("stable", "a vocabulary job")


def test_names_of_a_combination_whose_job_died_after_it_was_published_are_there(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.data / "names.csv").write_text(VOCABULARY)
    job_id = place.submit("combine", {**COMBINE, "data": "valid.jsonl"})
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(Store, "put_label_info", lambda *_: 1 / 0)
        run_job(place.claimed(job_id))
    assert place.store.versions("both") == (1,) and place.store.label_info("both") is None
    place.desk.end_lease(job_id)
    place.run(job_id)
    assert place.store.versions("both") == (1,) and place.store.label_info("both") is not None


def test_a_version_that_was_deleted_meanwhile_fails_the_job(place: Place) -> None:
    job_id = place.submit("training", TRAINING)
    run_job(place.claimed(job_id))
    place.store.promote("m", 1)
    place.store.delete("m", 2)
    place.desk.end_lease(job_id)
    with pytest.raises(VersionNotFound, match="was deleted"):
        place.run(job_id)


CHANGES = {
    "append": lambda path: path.write_text(
        path.read_text() + '{"text": "x", "labels": ["label0"]}\n'
    ),
    "replace": lambda path: shutil.copy(path, path.with_name("other")).replace(path),
    "remove": Path.unlink,
}


@pytest.mark.parametrize("change", CHANGES)
def test_data_that_changes_under_a_training_fails_it_and_nothing_is_published(
    place: Place, change: str
) -> None:
    def at(phase: str) -> None:
        if phase == "report":
            CHANGES[change](place.data / "train.jsonl")

    with pytest.raises(BadData, match=r"train\.jsonl"):
        place.train(at)
    assert place.store.versions("m") == (1,) and place.store.collect() == []


@pytest.mark.parametrize("held_out", [{"valid": None, "split": 0.3}, {"valid": "valid.csv"}])
def test_jobs_read_tables(place: Place, held_out: Any) -> None:
    for name in ("train", "valid"):
        lines = [
            json.loads(line) for line in (place.data / f"{name}.jsonl").read_text().splitlines()
        ]
        rows = "".join(f"{line['labels'][0]}|other,{line['text']}\n" for line in lines)
        (place.data / f"{name}.csv").write_text("tags,title\n" + rows)
    columns = {"text_column": ["title"], "label_column": "tags", "label_separator": "|"}
    tune = {"method": "fta"}
    done = place.train(data="train.csv", **columns, **held_out, thresholds=tune, promotion=ANYWAY)
    assert done.result["labels"] == N_LABELS + 1 and done.promotion.promoted
    report = place.do(
        "threshold-tuning", {"model": "m", "data": "valid.csv", **tune, **columns}
    ).result
    assert report["validation_micro_f"] > 50
    result = place.batch(data="valid.csv", text_column=["title"]).result
    assert (result["lines"], result["bad"]) == (80, 0)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("d.jsonl", "".join(f'{{"text": "t{i}", "labels": ["l{i % 3}"]}}\n\n' for i in range(100))),
        ("d.svm", "# a comment\n" + "".join(f"{i % 3} {i % 7}:1\n" for i in range(100))),
        ("d.txt", "100 7 3\n" + "".join(f"{i % 3} {i % 7}:1\n" for i in range(100))),
    ],
)
def test_lines_are_split_into_two_files_that_can_be_read(
    tmp_path: Path, name: str, content: Any
) -> None:
    path = tmp_path / name
    path.write_text(content)
    split = partial(split_lines, path, tmp_path / "work", 0.3, 1, no_progress)
    parts = split()
    counts = [read_dataset(part).n_rows for part in parts]
    assert sum(counts) == 100 and 15 < counts[1] < 45
    before = [part.read_bytes() for part in parts]
    assert [part.read_bytes() for part in split()] == before
    path.write_text(content.splitlines()[0] + "\n")
    with pytest.raises(BadData):
        split()


def test_a_tuning_is_kept_with_its_result_or_not_at_all(place: Place) -> None:
    request = {"model": "m", "data": "valid.jsonl"}
    job_id = place.submit("threshold-tuning", {**request, "method": "fta"})
    report = run_job(place.claimed(job_id))  # then its worker dies
    place.desk.end_lease(job_id)
    job = place.run(job_id)
    assert job.result == report and (job.version, report["epoch"], report["method"]) == (
        1,
        1,
        "fta",
    )

    job_id = place.submit("threshold-tuning", {**request, "version": 1})
    context = place.claimed(job_id)
    place.desk.end_lease(job_id)
    place.desk.claim()
    with pytest.raises(ClaimLost):
        run_job(context)
    assert place.tuned("m", 1).method == "fta"


def batch_data(place: Place, n_rows: int) -> None:
    """Write rows and a line that is none."""
    path = write_data(place.data / "batch.jsonl", n_rows, seed=9)
    path.write_text(path.read_text() + "no json\n")


def test_a_batch_answers_each_line_and_tells_what_labels_are_called(place: Any) -> None:
    batch_data(place, 50)
    names = all_names(place.store.open("m", verify=False).labels)
    subjects = [Subject(name, None, {"fi": f"nimi {name}"}) for name in names]
    place.store.put_label_info("m", build_label_info(subjects))
    job = place.batch(data="batch.jsonl", top_r=2, language="fi")
    path, lines = place.desk.jobs.result_file(job.id), place.predictions(job)
    assert job.result == {"lines": 51, "bad": 1, "bytes": path.stat().st_size}
    assert len(lines) == 51 and lines[-1]["error"]["line"] == 51
    for line in lines[:-1]:
        assert len(line["labels"]) == 2
        assert all(label["name"] == f"nimi {label['label']}" for label in line["labels"])
    assert job.version == 1 and path.name == RESULT


def test_a_batch_divides_long_texts(place: Place) -> None:
    lines = write_data(place.data / "x.jsonl", 30, seed=9).read_text().splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    write_lines(place.data / "long.jsonl", [{"text": " ".join(texts * 9)}])
    whole = place.predictions(place.batch(data="long.jsonl"))
    divided = place.predictions(place.batch(data="long.jsonl", chunk_characters=500))
    assert divided[0]["exact"] is False
    assert divided[0]["labels"] != whole[0]["labels"]


def test_a_batch_that_died_goes_on_where_it_was(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xylem.admin.jobs.batch.SYNC_SECONDS", 0.0)
    place.desk = place.desk.limited(block_rows_max=64)
    batch_data(place, 1000)
    whole = place.predictions(place.batch(data="batch.jsonl"))
    job_id = place.submit("batch", {"model": "m", "data": "batch.jsonl"})
    for n_calls in (1, 4, 9):  # each worker dies so many blocks further
        context = place.claimed(job_id)
        calls = [0]

        def told(phase: str, *_: int, calls: list[int] = calls, n_calls: int = n_calls) -> None:
            calls[0] += phase == "predict"
            if calls[0] > n_calls:
                raise Killed

        with pytest.raises(Killed):
            run_job(context._replace(on_progress=told))
        with (context.directory / PART).open("ab") as file:
            file.write(b"half a li")
        offset = json.loads((context.directory / OFFSET).read_bytes())
        assert 0 < offset["lines"] < 1001
        place.desk.end_lease(job_id)
        with place.desk.database.write() as connection:
            connection.exec_driver_sql("UPDATE jobs SET attempts = 1")
    job = place.run(job_id)
    assert place.predictions(job) == whole
    assert (job.result["lines"], job.result["bad"]) == (1001, 1)


def test_a_batch_that_was_done_and_could_not_say_so_is_not_done_again(place: Place) -> None:
    batch_data(place, 20)
    job_id = place.submit("batch", {"model": "m", "data": "batch.jsonl"})
    context = place.claimed(job_id)
    result = run_job(context)
    before = (context.directory / RESULT).stat()
    place.desk.end_lease(job_id)
    assert place.run(job_id).result == result and (context.directory / RESULT).stat() == before


def test_a_batch_of_a_file_that_changes_fails(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xylem.admin.jobs.batch.SYNC_SECONDS", 0.0)
    batch_data(place, 50)
    job_id = place.submit("batch", {"model": "m", "data": "batch.jsonl"})

    def at(phase: str) -> None:
        if phase == "predict":
            batch_data(place, 51)

    with pytest.raises(BadData, match="changed"):
        place.run(job_id, at)
    place.desk.end_lease(job_id)
    with pytest.raises(BadData, match="changed"):
        place.run(job_id)  # which would go on with another file
    assert not (place.store.root / "jobs" / job_id / RESULT).exists()


KEPT = {"model": "kept", "keep_rows": True, "valid": "valid.jsonl", "thresholds": {"method": "sto"}}
"""A training of a version that can be extended, with tuned thresholds."""


@pytest.mark.parametrize("phase", [None, "classifiers", "publish"])
def test_labels_are_added_once_and_tuned_thresholds_stay(place: Place, phase: str | None) -> None:
    place.train(**KEPT)
    write_lines(
        place.data / "new.jsonl", [{"text": "word0 word1", "labels": ["label0", "brand new"]}]
    )
    job_id = place.submit("extend", {"model": "kept", "data": "new.jsonl"})
    if phase is not None:
        place.die(job_id, phase)
    done = place.run(job_id)
    assert done.version == 2 and place.store.versions("kept") == (1, 2)
    model = place.store.open("kept")
    assert model.manifest.version == 2 and all_names(model.labels)[-1] == "brand new"
    before, after = (place.tuned("kept", version).thresholds.tolist() for version in (1, 2))
    assert after[:-1] == before and len(after) == N_LABELS + 1
    assert len(model.arrays["rows/indptr"]) == 1 + model.manifest.data.rows


def test_a_job_learns_a_label_that_its_version_lists_without_a_leaf(place: Place) -> None:
    lines = "".join(f"{i % 3} {i % 3}:1 {4 + i % 2}:1\n" for i in range(60))
    (place.data / "rows.txt").write_text(f"60 6 4\n{lines}")
    (place.data / "new.txt").write_text("20 6 4\n" + "3 3:1\n" * 20)
    (place.data / "names.txt").write_text("a\nb\nc\nd\n")
    numbers = {"data": "rows.txt", "valid": None, "label_names": "names.txt"}
    place.train(**numbers, model="numbers", keep_rows=True)
    (place.data / "other.txt").write_text(f"80 6 4\n{lines}" + "3 3:1\n" * 20)
    with pytest.raises(BadData, match="labels that numbers@1 has learnt, found 1 others, as 'd'"):
        place.train(
            **{**numbers, "data": "other.txt"},
            model="numbers",
            parameters={},
            **{"from": "numbers"},
        )
    extended = {
        "model": "numbers",
        "data": "new.txt",
        "label_names": "names.txt",
        "valid": "new.txt",
    }
    assert place.do("extend", extended).result["metrics"]["P@1"] == 100.0


def test_a_learner_goes_on_from_the_state_that_a_job_kept(place: Place) -> None:
    learning = {"trainer": "huffman-tree", "parameters": {"epochs": 2, "dim": 4}, "seed": 3}
    place.train(**learning, model="whole")
    place.train(**learning, model="cut", keep_state=True, until=1)
    place.train(**{**learning, "model": "cut", "parameters": {}, "from": "cut@1"})
    whole, cut = place.store.open("whole"), place.store.open("cut", 2)
    assert whole.manifest.seed == cut.manifest.seed and "state/json" not in cut.arrays
    for one, other in zip(whole.ensemble, cut.ensemble, strict=True):
        assert one.tobytes() == other.tobytes()


def test_a_version_that_goes_on_is_tuned_if_asked_and_else_judged_at_the_thresholds_it_takes(
    place: Place,
) -> None:
    place.train(**KEPT)
    seen = []

    def at(phase: str) -> None:
        if place.store.versions("kept") == (1, 2):  # it is measured
            seen.append(place.tuned("kept", 2) is not None)

    going_on = {"model": "kept", "parameters": {}, "from": "kept"}  # its rows are kept too
    place.train(at, **going_on, promotion=ANYWAY)
    assert seen and all(seen)
    write_lines(place.data / "new.jsonl", [{"text": "word0 word1", "labels": ["brand new"]}])
    anew = {"valid": "valid.jsonl", "thresholds": {"method": "ofo", "start": [3.0, 7.0]}}
    place.do("extend", {"model": "kept", "data": "new.jsonl", **anew})
    found = place.tuned("kept", 3)
    assert (found.method, found.start[:2]) == ("ofo", (3.0, 7.0))
