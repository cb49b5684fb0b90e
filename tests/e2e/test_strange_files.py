"""Files of public reports by every door: each says the same of a file, or reads it rightly."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import SecretStr
from tests.conftest import Run, serving
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.job_places import Place as JobPlace
from tests.helpers.servers import KEY
from tests.helpers.strange_files import EXAMPLES, IDS, LISTS, TEXTS, Example

import xylem
from xylem.base.errors import BadInput, XylemError
from xylem.base.settings import Settings
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.store import Store

PLAIN = ("-p", "trees=1")


class Place(NamedTuple):
    """A store with models of plain rows, and the files of the examples by their names.

    jobs   the result of the training of each example that was submitted over HTTP, or its fault
    """

    store: Path
    files: dict[str, Path]
    jobs: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    home = tmp_path_factory.mktemp("strange")
    (home / "data").mkdir()
    jobs = JobPlace(home)
    files = {}
    for example in EXAMPLES:
        (home / "data" / example.name).mkdir()
        name = example.write(home / "data" / example.name)
        files[example.name] = home / "data" / example.name / name
    for name, labels in (("texts", LISTS), ("numbers", [[str(i) for i in ids] for ids in IDS])):
        rows = [{"text": t, "labels": ls} for t, ls in zip(TEXTS, labels, strict=True)]
        publish(jobs.store, name, write_lines(home / f"{name}.jsonl", rows))
    publish(jobs.store, "ids", files["from-one"])
    answers = asyncio.run(submit_all(jobs.desk.settings, files))
    return Place(
        jobs.store.root, files, {name: ended(jobs, *answer) for name, answer in answers.items()}
    )


def publish(store: Store, name: str, data: Path) -> None:
    request = TrainRequest(trainer="label-tree", data=data, parameters=("trees=1",))
    train_and_publish(store, name, request)


async def submit_all(settings: Settings, files: dict[str, Path]) -> dict[str, tuple[int, Any]]:
    """Submit a training of each example over HTTP; return the status and body of each answer."""
    answers = {}
    settings = settings.model_copy(update={"admin_key": SecretStr(KEY)})
    async with serving(settings) as (_, client):
        for example in EXAMPLES:
            path = files[example.name]
            names = sorted(path.parent.glob(path.name))
            data = [str(name.relative_to(path.parents[1])) for name in names]
            body = {"data": data[0] if len(data) == 1 else data, "parameters": {"trees": 1}}
            answer = await client.post(
                "/v1/admin/training-jobs",
                json={"model": example.name, "trainer": "label-tree", **body, **example.options},
                headers={"authorization": f"Bearer {KEY}"},
            )
            answers[example.name] = (answer.status_code, answer.json())
    return answers


def ended(jobs: JobPlace, status: int, answer: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a job that was accepted, or its fault."""
    if status != 202:
        return {"fault": answer["detail"]}
    try:
        return dict(jobs.run(answer["id"]).result)
    except XylemError as error:
        return {"fault": str(error)}


def options_of(example: Example) -> list[str]:
    """Return the options of a command that reads a file as the fields of a job say."""
    return [
        part
        for name, value in example.options.items()
        for part in (f"--{name.replace('_', '-')}", value)
    ]


def check_facts(example: Example, facts: dict[str, Any]) -> None:
    """Check what a door reports that has read the file."""
    assert facts["data"]["labels"] == 8, facts["data"]
    assert not facts.get("unknown_labels"), "a model of the same labels was measured"
    codes = {finding["code"] for finding in facts["findings"]}
    assert codes == ({example.code} if example.code else set()), facts["findings"]


def check_command(example: Example, done: subprocess.CompletedProcess[str]) -> None:
    """Check that a command has refused the file, or has read it and reports its finding."""
    if example.fault:
        assert done.returncode == 2 and example.fault in done.stderr, done.stderr
        assert f"({example.code})" in done.stderr or not example.code, done.stderr
        return
    assert done.returncode == 0, done.stderr
    check_facts(example, json.loads(done.stdout.splitlines()[-1]))


names = {"argvalues": EXAMPLES, "ids": [example.name for example in EXAMPLES]}


@pytest.mark.parametrize("example", **names)
def test_inspect_train_and_evaluate_say_the_same(
    example: Example, place: Place, run_here: Run, tmp_path: Path
) -> None:
    how = ("--data", place.files[example.name], *options_of(example), "--json")
    file, *rest = how[1:]
    check_command(example, run_here("inspect", file, *rest, store=place.store))
    new = ("--model", "m", *PLAIN)
    train = run_here("train", "label-tree", *how, *new, store=tmp_path / "store")
    check_command(example, train)
    check_command(example, run_here("evaluate", example.model, *how, store=place.store))


@pytest.mark.parametrize("example", **names)
def test_a_job_says_the_same_as_the_commands(example: Example, place: Place) -> None:
    result = place.jobs[example.name]
    if place.files[example.name].is_dir():
        assert result["fault"].startswith("data: expected a file below the data directory")
    elif example.fault:
        assert example.fault in result["fault"], result
        assert f"({example.code})" in result["fault"] or not example.code, result
    else:
        check_facts(example, result)


@pytest.mark.parametrize("example", **names)
def test_a_try_stops_at_each_doubt(
    example: Example, place: Place, run_here: Run, tmp_path: Path
) -> None:
    file = place.files[example.name]
    how = (file, *options_of(example), "--no-serve", "--json", "--model", "m")
    done = run_here("try", *how, store=tmp_path)
    if not example.code:
        check_command(example, done)
        return
    assert done.returncode == 2 and f"({example.code})" in done.stderr, done.stderr
    assert example.fault in done.stderr and not (tmp_path / "models").exists()
    assert example.fault or "--yes trains nevertheless" in done.stderr


@pytest.mark.parametrize("name", [example.name for example in EXAMPLES if example.in_memory])
def test_rows_in_memory_mean_the_same(name: str) -> None:
    example = next(example for example in EXAMPLES if example.name == name)
    assert example.in_memory is not None
    fault = example.fault if example.python is None else example.python
    instances, labels = example.in_memory()
    if fault:
        with pytest.raises(BadInput, match=fault):
            xylem.train(instances, labels, trees=1, progress=False)
        return
    model = xylem.train(instances, labels, trees=1, progress=False)
    expected = example if example.python is None else example._replace(code="")
    check_facts(expected, model.report)
    check_facts(expected, model.evaluate(instances, labels))
