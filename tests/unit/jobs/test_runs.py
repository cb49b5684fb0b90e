"""What jobs do, in this process: they publish once, tune, promote, go on with batches, see data change."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from model_store.errors import VersionNotFound
from model_store.label_info import Subject, build_label_info
from model_store.names import name_of
from model_store.origin import read_origin
from model_store.store import Store
from service.base.errors import BadData
from service.jobs.context import JobContext
from service.jobs.files import OFFSET, PART, RESULT, WORK, make_directory
from service.jobs.job import Job, PromotionVerdict
from service.jobs.kinds import run_job
from service.jobs.leases import ClaimLost
from service.jobs.promotion import judge_conditions
from service.jobs.requests import PromotionCondition
from service.jobs.sources import split_lines
from service.thresholds.store.state import ThresholdDatabase
from service.workflows.evaluate import valid_figures
from service.workflows.labelled import no_progress, read_labelled
from service.workflows.train import TrainRequest, train_and_publish
from tests.jobs_helpers import N_LABELS, TRAINING, Desk, settings_for, write_data


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a store that has a version of model m, and its data. Not to be changed."""
    directory = tmp_path_factory.mktemp("trained")
    settings = settings_for(directory)
    data = directory / "data" / "train.jsonl"
    train_and_publish(Store(settings.store), "m", TrainRequest("label-tree", data, parameters=("trees=1",)))
    return directory


def evaluated(directory: Path) -> dict[str, Any]:
    """The figures of an evaluation."""
    settings = settings_for(directory)
    store = Store(settings.store)
    data = directory / "data" / "train.jsonl"
    train_and_publish(store, "m", TrainRequest("label-tree", data, parameters=("trees=1",)))
    model = store.open("m")
    return valid_figures(model, read_labelled(model, data, no_progress), 1, no_progress).metrics


class Place:
    """A store with its jobs: runs them in this process, as their processes would."""

    def __init__(self, directory: Path) -> None:
        self.settings = settings_for(directory)
        self.desk = Desk(self.settings)
        self.store = Store(self.settings.store)
        self.data = directory / "data"
        self.phases: list[str] = []

    def submit(self, kind: str, request: dict[str, Any]) -> str:
        return self.desk.jobs.submit(kind, request).id

    def run(self, job_id: str, at: Callable[[str], None] | None = None) -> Job:
        """Claim the job, run it, and let it have succeeded. `at` is called at the beginning of each phase."""
        context = self.claimed(job_id, at)
        result = run_job(context)
        self.desk.leases.succeed(context.claim, result)
        return self.desk.jobs.get(job_id)

    def die(self, job_id: str, at: Callable[[str], None]) -> None:
        """Run the job as a process that dies where `at` raises Killed."""
        with pytest.raises(Killed):
            self.run(job_id, at)
        self.desk.end_lease(job_id)

    def batch(self, **request: Any) -> Job:
        return self.run(self.submit("batch", {"model": "m", **request}))

    def predictions(self, job: Job) -> list[Any]:
        """The answers of a batch, without the ids, of which no two are alike."""
        lines = self.desk.jobs.result_file(job.id).read_bytes().splitlines()
        return [{**json.loads(line), "prediction_id": None} for line in lines]

    def claimed(self, job_id: str, at: Callable[[str], None] | None = None) -> JobContext:
        claim = self.desk.leases.claim("w")
        assert claim is not None and claim.job.id == job_id
        directory = make_directory(self.settings.store, job_id)
        (directory / WORK).mkdir(exist_ok=True)

        def told(phase: str, done: int, total: int) -> None:
            if self.phases[-1:] != [phase]:
                self.phases.append(phase)
                if at is not None:
                    at(phase)

        return JobContext(
            claim,
            self.settings,
            self.store,
            self.desk.database,
            self.desk.leases,
            self.desk.jobs.data,
            directory,
            told,
        )


@pytest.fixture
def place(trained: Path, tmp_path: Path) -> Iterator[Place]:
    for name in ("store", "data"):
        shutil.copytree(trained / name, tmp_path / name)
    made = Place(tmp_path)
    yield made
    made.desk.database.close()


class Killed(BaseException):
    """The process of a job dies here."""


def die_at(*phases: str) -> Callable[[str], None]:
    def at(phase: str) -> None:
        if phase in phases:
            raise Killed

    return at


def rule(alias: str, *conditions: tuple[str, float]) -> dict[str, Any]:
    return {"alias": alias, "if": [{"metric": name, "least_change": change} for name, change in conditions]}


def test_a_training_publishes_a_version_that_says_whose_it_is(place: Place) -> None:
    job = place.run(place.submit("training", TRAINING))
    assert (job.state, job.version, job.promotion) == ("succeeded", 2, None)
    assert place.store.resolve("m") == 2
    assert place.store.published("m", job.id) == place.store.manifest("m", 2)
    assert job.result is not None and job.result["metrics"]["P@1"] > 50


def test_a_training_is_calibrated_on_what_was_split_off(place: Place) -> None:
    write_data(place.data / "many.jsonl", 400, seed=3, noise=0.4)
    request = {**TRAINING, "data": "many.jsonl", "valid": None, "split": 0.4, "calibrate": True}
    job = place.run(place.submit("training", request))
    assert (job.state, job.version) == ("succeeded", 2)
    origin = read_origin(place.store.open("m", 2).arrays)
    assert (origin["job"], origin["calibration"]["rows"] >= 100) == (job.id, True)
    assert place.store.published("m", job.id) == place.store.manifest("m", 2)


@pytest.mark.parametrize("died", [False, True])
def test_a_training_tells_its_warnings_and_the_features_that_were_tried(place: Place, died: bool) -> None:
    with (place.data / "train.jsonl").open("a") as file:
        file.write(40 * '{"text": "", "labels": ["label0"]}\n')
    request = {**TRAINING, "parameters": {"trees": 1, "features.kind": "auto", "features.rows": 100}}
    job_id = place.submit("training", {**request, "thresholds": {"method": "fta"}})
    if died:
        place.die(job_id, die_at("estimates"))
    result = place.run(job_id).result
    assert result is not None
    assert result["warnings"] == [
        f"40 of 240 training rows have no feature (kind {place.store.manifest('m', 2).features['kind']}): "
        "nothing is learnt from them"
    ]
    first = result["features"]["tried"][0]
    assert first["features"] == "words" and "us_per_row" not in first


def test_thresholds_are_tuned_before_the_version_is_served(place: Place) -> None:
    def at(phase: str) -> None:
        if phase == "estimates":
            assert place.store.resolve("m") == 1

    job = place.run(place.submit("training", {**TRAINING, "thresholds": {"method": "fta"}}), at)
    assert "estimates" in place.phases
    tuned = ThresholdDatabase(place.desk.database).load("m", 2)
    assert tuned is not None and tuned.method == "fta"
    assert place.store.resolve("m") == 2 and job.promotion is not None and job.promotion.promoted


@pytest.mark.parametrize(
    ("conditions", "promoted"),
    [
        ((("P@5", -0.2), ("macro_f", 0.0)), True),
        ((("P@1", 0.01),), False),
        ((("P@1", -100.0), ("PSP@3", 0.01)), False),
        ((), True),
    ],
)
def test_an_alias_moves_if_the_rule_says_so(
    place: Place, conditions: tuple[tuple[str, float], ...], promoted: bool
) -> None:
    job = place.run(place.submit("training", {**TRAINING, "promotion": rule("latest", *conditions)}))
    assert job.promotion is not None and job.promotion.baseline == 1
    assert job.promotion.promoted is promoted, job.promotion
    assert len(job.promotion.reasons) == max(len(conditions), 1)
    assert place.store.versions("m") == (1, 2)
    assert place.store.resolve("m") == (2 if promoted else 1)


def test_a_rule_for_no_alias_moves_none(place: Place) -> None:
    job = place.run(place.submit("training", {**TRAINING, "promotion": {"alias": None}}))
    assert (job.state, job.version, job.promotion) == ("succeeded", 2, None)
    assert place.store.info("m").aliases == {"latest": 1}
    job = place.run(place.submit("training", {**TRAINING, "model": "first", "promotion": {"alias": None}}))
    assert place.store.info("first").aliases == {"latest": 1}


def test_without_a_version_to_compare_with_the_first_is_promoted_and_says_so(place: Place) -> None:
    for alias in ("stable", "latest"):
        request = {**TRAINING, "model": f"new-{alias}", "promotion": rule(alias, ("P@1", 5.0))}
        job = place.run(place.submit("training", request))
        assert job.promotion is not None and job.promotion.promoted and job.promotion.baseline is None
        assert "no other version" in job.promotion.reasons[0]
        assert place.store.resolve(f"new-{alias}", alias) == 1


def test_a_version_that_cannot_be_opened_is_not_replaced_by_a_rule(place: Place) -> None:
    array = next((place.settings.store / "models/m/versions/1/arrays").iterdir())
    array.chmod(0o644)
    array.write_bytes(array.read_bytes()[:-1] + b"?")
    job = place.run(place.submit("training", {**TRAINING, "promotion": rule("latest", ("P@1", -100.0))}))
    assert job.promotion is not None and not job.promotion.promoted
    assert "expected to measure version 1" in job.promotion.reasons[0]
    assert place.store.resolve("m") == 1


def test_conditions_tell_each_figure_and_need_both() -> None:
    conditions = [PromotionCondition(metric="P@5", least_change=-0.2), PromotionCondition(metric="PSP@1")]
    holds, reasons = judge_conditions(conditions, {"P@5": 40.0, "PSP@1": 3.0}, {"P@5": 40.2, "PSP@1": 3.0})
    assert holds and "from 40.20 to 40.00" in reasons[0]
    holds, reasons = judge_conditions(conditions, {"P@5": 40.0, "PSP@1": 3.0}, {"P@5": 40.21, "PSP@1": None})
    assert not holds and "not enough" in reasons[0] and "no such figure of the one before" in reasons[1]


PHASES = ["read", "report", "publish", "estimates", "measure ofo", "decide"]


@pytest.mark.parametrize("phase", PHASES)
def test_a_training_that_died_in_any_phase_is_finished_by_the_next_worker(place: Place, phase: str) -> None:
    request = {**TRAINING, "thresholds": {"method": "ofo"}, "promotion": rule("latest", ("P@5", -100.0))}
    job_id = place.submit("training", request)
    seen: list[str] = []

    def at(now: str) -> None:
        seen.append(now)
        if now == phase and (now != "decide" or "measure ofo" in seen):  # not that of the training's figures
            raise Killed

    place.die(job_id, at)
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


def test_a_verdict_is_acted_on_once_and_undoes_nobodys_decision(place: Place) -> None:
    job_id = place.submit("training", {**TRAINING, "promotion": rule("latest")})
    place.die(job_id, die_at("publish"))
    context = place.claimed(job_id)
    run_job(context)  # all is done, but nobody was told
    assert place.store.resolve("m") == 2
    place.store.promote("m", 1)  # an admin's decision
    train_and_publish(
        place.store, "m", TrainRequest("label-tree", place.data / "train.jsonl", parameters=("trees=1",))
    )
    place.desk.end_lease(job_id)
    job = place.run(job_id)
    assert job.promotion == PromotionVerdict(True, job.promotion.reasons, "latest", 1)  # type: ignore[union-attr]
    assert place.store.resolve("m") == 3


VOCABULARY = "uri,label_en\n" + "".join(f"label{i},first{i}\n" for i in range(N_LABELS))
COMBINE = {"model": "both", "members": ["m@1"], "vocabulary": "names.csv", "language": "en"}


@pytest.mark.parametrize("phase", [None, "read", "publish", "decide"])
def test_a_combination_and_its_next_vocabulary_are_published_once(place: Place, phase: str | None) -> None:
    (place.data / "names.csv").write_text(VOCABULARY)
    (place.data / "more.csv").write_text(VOCABULARY + "label9,word7\n")
    write_data(place.data / "other.jsonl", 120, seed=3)
    tuned = {"valid": "valid.jsonl", "thresholds": {"method": "sto"}}
    measured = {**tuned, "promotion": rule("stable", ("P@1", 0))}
    wanted = [
        ("combine", {**COMBINE, **measured, "data": "other.jsonl"}),
        ("vocabulary", {"model": "both", "vocabulary": "more.csv", **measured}),
    ]
    for number, (kind, request) in enumerate(wanted, 1):
        job_id = place.submit(kind, request)
        if phase is not None:
            place.die(job_id, die_at(phase))
        done = place.run(job_id)
        assert done.version == number and done.promotion is not None and done.promotion.promoted
        assert done.result is not None and done.result["combined"]["members"].keys() == {"m@1"}
        assert place.store.versions("both") == tuple(range(1, number + 1))
        info = place.store.label_info("both")
        assert info is not None and info.head.n_subjects == N_LABELS + number - 1
        assert read_origin(place.store.open("both", number).arrays)["job"] == job_id
        assert ThresholdDatabase(place.desk.database).load("both", number) is not None
    moved = place.store.moves("both")[-1]
    assert (moved.alias, moved.who) == ("stable", "a vocabulary job")


def test_names_of_a_combination_whose_job_died_after_it_was_published_are_there(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.data / "names.csv").write_text(VOCABULARY)
    job_id = place.submit("combine", {**COMBINE, "data": "valid.jsonl"})
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Store, "put_label_info", lambda *_: die_at("")(""))
        run_job(place.claimed(job_id))
    assert place.store.versions("both") == (1,) and place.store.label_info("both") is None
    place.desk.end_lease(job_id)
    place.run(job_id)
    assert place.store.versions("both") == (1,) and place.store.label_info("both") is not None


def test_a_version_that_was_deleted_meanwhile_fails_the_job(place: Place) -> None:
    job_id = place.submit("training", TRAINING)
    context = place.claimed(job_id)
    run_job(context)
    place.store.promote("m", 1)
    place.store.delete("m", 2)
    place.desk.end_lease(job_id)
    with pytest.raises(VersionNotFound, match="was deleted"):
        place.run(job_id)


@pytest.mark.parametrize("change", ["append", "replace", "remove"])
def test_data_that_changes_under_a_training_fails_it_and_nothing_is_published(
    place: Place, change: str
) -> None:
    path = place.data / "train.jsonl"

    def at(phase: str) -> None:
        if phase == "report":
            if change == "append":
                path.write_bytes(path.read_bytes() + b'{"text": "x", "labels": ["label0"]}\n')
            elif change == "remove":
                path.unlink()
            else:
                other = path.with_name("other")
                other.write_bytes(path.read_bytes())
                other.replace(path)

    with pytest.raises(BadData, match=r"train\.jsonl"):
        place.run(place.submit("training", TRAINING), at)
    assert place.store.versions("m") == (1,) and place.store.collect() == []


def test_a_split_keeps_rows_out_of_the_training(place: Place) -> None:
    request = {**TRAINING, "split": 0.25, "promotion": rule("latest", ("P@1", -100.0))}
    del request["valid"]
    job = place.run(place.submit("training", request))
    assert job.result is not None and 120 < job.result["rows"] < 180
    assert job.promotion is not None and job.promotion.promoted


@pytest.mark.parametrize("split", [False, True])
def test_jobs_read_tables(place: Place, split: bool) -> None:
    for name in ("train", "valid"):
        lines = [json.loads(line) for line in (place.data / f"{name}.jsonl").read_text().splitlines()]
        rows = "".join(f"{line['labels'][0]}|other,{line['text']}\n" for line in lines)
        (place.data / f"{name}.csv").write_text("tags,title\n" + rows)
    columns = {"text_column": ["title"], "label_column": "tags", "label_separator": "|"}
    request = {
        **TRAINING,
        **columns,
        "data": "train.csv",
        "thresholds": {"method": "fta"},
        "promotion": rule("latest", ("P@1", -100.0)),
    }
    del request["valid"]
    done = place.run(
        place.submit("training", {**request, **({"split": 0.3} if split else {"valid": "valid.csv"})})
    )
    assert done.result is not None and done.result["labels"] == N_LABELS + 1
    assert done.promotion is not None and done.promotion.promoted
    tuning = {"model": "m", "data": "valid.csv", "method": "fta", **columns}
    report = place.run(place.submit("threshold-tuning", tuning)).result
    assert report is not None and report["validation_micro_f"] > 50
    job = place.batch(data="valid.csv", text_column=["title"])
    assert job.result is not None and (job.result["lines"], job.result["bad"]) == (80, 0)


@pytest.mark.parametrize("name", ["d.jsonl", "d.svm", "d.txt"])
def test_lines_are_split_into_two_files_that_can_be_read(tmp_path: Path, name: str) -> None:
    from service.datasets import read_dataset

    rows = {
        "d.jsonl": "".join(f'{{"text": "t{i}", "labels": ["l{i % 3}"]}}\n\n' for i in range(100)),
        "d.svm": "# a comment\n" + "".join(f"{i % 3} {i % 7}:1\n" for i in range(100)),
        "d.txt": "100 7 3\n" + "".join(f"{i % 3} {i % 7}:1\n" for i in range(100)),
    }
    (tmp_path / name).write_text(rows[name])
    train, valid = split_lines(tmp_path / name, tmp_path / "work", 0.3, 1, no_progress)
    counts = [read_dataset(path).n_rows for path in (train, valid)]
    assert sum(counts) == 100 and 15 < counts[1] < 45
    before = train.read_bytes(), valid.read_bytes()
    split_lines(tmp_path / name, tmp_path / "work", 0.3, 1, no_progress)
    assert (train.read_bytes(), valid.read_bytes()) == before
    (tmp_path / name).write_text(rows[name].splitlines()[0] + "\n")
    with pytest.raises(BadData):
        split_lines(tmp_path / name, tmp_path / "work", 0.3, 1, no_progress)


def test_a_tuning_is_kept_with_its_result_or_not_at_all(place: Place) -> None:
    job_id = place.submit("threshold-tuning", {"model": "m", "data": "valid.jsonl", "method": "fta"})
    context = place.claimed(job_id)
    report = run_job(context)  # then its worker dies
    place.desk.end_lease(job_id)
    job = place.run(job_id)
    assert job.result == report and (job.version, report["epoch"], report["method"]) == (1, 1, "fta")

    job_id = place.submit("threshold-tuning", {"model": "m", "data": "valid.jsonl", "version": 1})
    context = place.claimed(job_id)
    place.desk.end_lease(job_id)
    assert place.desk.leases.claim("other") is not None
    with pytest.raises(ClaimLost):
        run_job(context)
    tuned = ThresholdDatabase(place.desk.database).load("m", 1)
    assert tuned is not None and tuned.method == "fta"


def batch_data(place: Place, n_rows: int) -> None:
    path = write_data(place.data / "batch.jsonl", n_rows, seed=9)
    with path.open("a") as file:
        file.write("no json\n")


def test_a_batch_answers_each_line(place: Place) -> None:
    batch_data(place, 50)
    job = place.batch(data="batch.jsonl", top_r=2)
    path, lines = place.desk.jobs.result_file(job.id), place.predictions(job)
    assert job.result == {"lines": 51, "bad": 1, "bytes": path.stat().st_size}
    assert len(lines) == 51 and lines[-1]["error"]["line"] == 51 and len(lines[0]["labels"]) == 2
    assert job.version == 1 and path.name == RESULT


def test_a_batch_divides_long_texts(place: Place) -> None:
    lines = write_data(place.data / "x.jsonl", 30, seed=9).read_text().splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    (place.data / "long.jsonl").write_text(json.dumps({"text": " ".join(texts * 9)}) + "\n")
    whole = place.predictions(place.batch(data="long.jsonl"))
    divided = place.predictions(place.batch(data="long.jsonl", chunk_characters=500))
    assert divided[0]["exact"] is False
    assert divided[0]["labels"] != whole[0]["labels"]


def test_a_batch_tells_what_labels_are_called(place: Place) -> None:
    batch_data(place, 5)
    store = Store(place.settings.store)
    labels = store.open("m", verify=False).labels
    names = [name_of(labels, i) for i in range(labels.n_names)]
    store.put_label_info(
        "m", build_label_info([Subject(name, None, {"fi": f"nimi {name}"}) for name in names])
    )
    for line in place.predictions(place.batch(data="batch.jsonl", language="fi"))[:5]:
        assert line["labels"]
        assert all(label["name"] == f"nimi {label['label']}" for label in line["labels"])


def test_a_batch_that_died_goes_on_where_it_was(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.jobs.batch.SYNC_SECONDS", 0.0)
    limits = place.settings.limits.model_copy(update={"block_rows_max": 64})
    place.settings = place.settings.model_copy(update={"limits": limits})
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
    assert job.result is not None and job.result["lines"] == 1001 and job.result["bad"] == 1


def test_a_batch_that_was_done_and_could_not_say_so_is_not_done_again(place: Place) -> None:
    batch_data(place, 20)
    job_id = place.submit("batch", {"model": "m", "data": "batch.jsonl"})
    context = place.claimed(job_id)
    result = run_job(context)
    before = (context.directory / RESULT).stat()
    place.desk.end_lease(job_id)
    job = place.run(job_id)
    assert job.result == result and (context.directory / RESULT).stat() == before


def test_a_batch_of_a_file_that_changes_fails(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.jobs.batch.SYNC_SECONDS", 0.0)
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
    assert not (place.settings.store / "jobs" / job_id / RESULT).exists()


@pytest.mark.parametrize("phase", [None, "classifiers", "publish"])
def test_labels_are_added_once_and_tuned_thresholds_stay(place: Place, phase: str | None) -> None:
    tune = {"valid": "valid.jsonl", "thresholds": {"method": "sto"}}
    place.run(place.submit("training", {**TRAINING, **tune, "model": "kept", "keep_rows": True}))
    line = {"text": "word0 word1", "labels": ["label0", "brand new"]}
    (place.data / "new.jsonl").write_text(json.dumps(line) + "\n")
    request = {"model": "kept", "data": "new.jsonl"}
    job_id = place.submit("extend", request)
    if phase is not None:
        place.die(job_id, die_at(phase))
    done = place.run(job_id)
    assert done.version == 2 and place.store.versions("kept") == (1, 2)
    model = place.store.open("kept")
    assert model.manifest.version == 2 and name_of(model.labels, N_LABELS) == "brand new"
    before, after = (ThresholdDatabase(place.desk.database).load("kept", n) for n in (1, 2))
    assert before is not None and after is not None and len(after.thresholds) == N_LABELS + 1
    assert after.thresholds[:N_LABELS].tolist() == before.thresholds.tolist()
    assert len(model.arrays["rows/indptr"]) == 1 + model.manifest.data.rows


def test_a_learner_goes_on_from_the_state_that_a_job_kept(place: Place) -> None:
    learning = {**TRAINING, "trainer": "huffman-tree", "parameters": {"epochs": 2, "dim": 4}, "seed": 3}
    place.run(place.submit("training", {**learning, "model": "whole"}))
    place.run(place.submit("training", {**learning, "model": "cut", "keep_state": True, "until": 1}))
    place.run(place.submit("training", {**learning, "model": "cut", "parameters": {}, "from": "cut@1"}))
    whole, cut = place.store.open("whole"), place.store.open("cut", 2)
    assert whole.manifest.seed == cut.manifest.seed and "state/json" not in cut.arrays
    assert all(
        one.tobytes() == other.tobytes() for one, other in zip(whole.ensemble, cut.ensemble, strict=True)
    )


def test_a_version_that_goes_on_is_tuned_if_asked_and_else_judged_at_the_thresholds_it_takes(
    place: Place,
) -> None:
    tune = {"valid": "valid.jsonl", "thresholds": {"method": "sto"}}
    place.run(place.submit("training", {**TRAINING, **tune, "model": "kept", "keep_rows": True}))
    kept_in, seen = ThresholdDatabase(place.desk.database), []
    going_on = {**TRAINING, "model": "kept", "parameters": {}, "from": "kept"}  # its rows are kept too

    def at(phase: str) -> None:
        if place.store.versions("kept") == (1, 2):  # it is measured
            seen.append(kept_in.load("kept", 2) is not None)

    place.run(place.submit("training", {**going_on, "promotion": rule("latest", ("P@1", -100.0))}), at)
    assert seen and all(seen)
    (place.data / "new.jsonl").write_text('{"text": "word0 word1", "labels": ["brand new"]}\n')
    anew = {"valid": "valid.jsonl", "thresholds": {"method": "ofo", "start": [3.0, 7.0]}}
    place.run(place.submit("extend", {"model": "kept", "data": "new.jsonl", **anew}))
    found = kept_in.load("kept", 3)
    assert found is not None and (found.method, found.start[:2]) == ("ofo", (3.0, 7.0))
