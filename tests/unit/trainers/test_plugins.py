"""Trainers of installed packages: the one of docs/add_a_trainer.md, and
packages that are broken or clash.
"""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.checkout import PYTHONPATH
from tests.helpers.trainings import data_of, estimate_by, trained_by

from xylem.trainers import TRAINERS

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "add_a_trainer.md").read_text()
ROWS = "".join(
    json.dumps({"text": f"{word} {word} {other}", "labels": [word]}) + "\n"
    for word in ("red", "green", "blue")
    for other in ("light", "dark", "pale")
)

GOOD = """
from dataclasses import replace
from xylem.trainers.label_tree import OVR
SPEC = replace(OVR, name="{name}")
"""

REFUSALS = {
    "raises": "trainer raises of xylem-one 1.0: expected to import broken:SPEC.missing, "
    "found AttributeError",
    "gone": "trainer gone of xylem-one 1.0: expected to import not_there:SPEC, found "
    "ModuleNotFoundError",
    "number": "trainer number of xylem-one 1.0: expected a TrainerSpec in broken:NUMBER, found int",
    "renamed": "trainer renamed of xylem-one 1.0: expected a TrainerSpec of that name, found "
    "'other'",
    "twice": "trainer twice: expected one distribution to have it, found xylem-one 1.0 and "
    "xylem-two 1.0",
    "other": "trainer: expected one of label-tree, ovr, plt, lomtree, fastxml, pfastrexml, ldsm, "
    "huffman-tree, learned-tree, gone, means, number, raises, renamed, twice, found 'other'",
}
ASK = """
import sys
from xylem.base.errors import BadParameter
from xylem.trainers.registry import trainer
for name in sys.argv[1:]:
    try:
        print(trainer(name))
    except BadParameter as error:
        print(error)
"""


def package(name: str, module: str, points: dict[str, str], code: str) -> dict[str, str]:
    """The files of a distribution with one module and its entry points."""
    lines = "".join(f'{key} = "{value}"\n' for key, value in points.items())
    project = (
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        f'[project]\nname = "{name}"\nversion = "1.0"\n'
        f'[project.entry-points."xylem.trainers"]\n{lines}'
        f'[tool.hatch.build.targets.wheel]\nonly-include = ["{module}.py"]\n'
    )
    return {"pyproject.toml": project, f"{module}.py": code}


def python(target: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python where the packages in `target` are installed."""
    env = {**os.environ, "PYTHONPATH": f"{PYTHONPATH}{os.pathsep}{target}"}
    command = [sys.executable, *map(str, words)]
    return subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=240, check=False
    )


def xylem(target: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return python(target, "-m", "xylem.cli.entry", *words)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with packages of every sort."""
    folder = tmp_path_factory.mktemp("plugins")
    project, module = re.findall(r"```(?:toml|python)\n(.*?)```", PAGE, re.DOTALL)
    points = dict.fromkeys(["renamed", "ovr", "twice"], "broken:SPEC")
    points |= {"raises": "broken:SPEC.missing", "number": "broken:NUMBER", "gone": "not_there:SPEC"}
    broken = GOOD.format(name="other") + "NUMBER = 7\n"
    distributions = {
        "xylem-means": {"pyproject.toml": project, "xylem_means.py": module},
        "one": package("xylem-one", "broken", points, broken),
        "two": package("xylem-two", "second", {"twice": "second:SPEC"}, GOOD.format(name="twice")),
    }
    for distribution, files in distributions.items():
        (folder / distribution).mkdir()
        for name, text in files.items():
            (folder / distribution / name).write_text(text)
    target = folder / "target"
    options = ["--quiet", "--no-input", "--disable-pip-version-check", "--no-index", "--no-deps"]
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        *options,
        "--no-build-isolation",
        "--target",
        target,
    ]
    subprocess.run([*command, *(folder / name for name in distributions)], check=True, timeout=120)
    (target / "rows.jsonl").write_text(ROWS)
    return target


def many_features() -> tuple[np.ndarray, np.ndarray]:
    """Rows with few of many features, so that a weight of a feature needs an offset, too."""
    random = np.random.default_rng(5)
    label = random.integers(0, 70, 300)
    return random.random((300, 3000)) < 0.004, np.eye(70, dtype=np.bool_)[label]


@pytest.mark.parametrize("x_and_y", [many_features(), (np.zeros((6, 5)), np.eye(6) > 0)])
def test_the_trainer_of_the_page_keeps_its_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, x_and_y: tuple[np.ndarray, np.ndarray]
) -> None:
    (tmp_path / "means.py").write_text(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0])
    monkeypatch.setitem(TRAINERS, "means", runpy.run_path(str(tmp_path / "means.py"))["MEANS"])
    data = data_of(*x_and_y)
    trained = trained_by("means", data)
    stored = sum(array.nbytes for array in trained.ensemble)
    assert stored <= estimate_by("means", data)["stored_bytes"]["float32"]


def test_the_trainer_of_the_page_trains_and_predicts(installed: Path, tmp_path: Path) -> None:
    data, store = installed / "rows.jsonl", tmp_path / "store"
    words = (
        "train",
        "means",
        "--data",
        data,
        "--valid",
        data,
        "--model",
        "m",
        "--store",
        store,
        "--json",
    )
    done = xylem(installed, *words, "-p", "sharpness=10", "-p", "features.ngram_max=2")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["trainer"] == "means" and report["metrics"]["P@1"] == 100.0
    shown = json.loads(xylem(installed, "models", "show", "m", "--store", store, "--json").stdout)
    assert shown["trainer"] == {"name": "means", "parameters": {"sharpness": 10.0, "middle": 0.5}}
    # the version needs nothing of the package that trained it
    answer = xylem(tmp_path, "predict", "m", "--store", store, "--data", data, "--json")
    assert answer.returncode == 0, answer.stderr


def test_its_parameters_are_checked_as_our_own(installed: Path, tmp_path: Path) -> None:
    words = (
        "train",
        "means",
        "--data",
        installed / "rows.jsonl",
        "--model",
        "m",
        "--store",
        tmp_path / "s",
    )
    done = xylem(installed, *words, "-p", "sharpnes=1", "-p", "middle=2")
    assert done.returncode == 2
    assert (
        "sharpnes: expected only sharpness, middle, found another parameter; did you mean "
        "sharpness?" in (done.stderr)
    )
    assert "middle: expected a number from 0 to 1, found 2" in done.stderr
    assert not (tmp_path / "s").exists()


def test_what_cannot_be_used_names_its_distribution(installed: Path) -> None:
    done = python(installed, "-c", ASK, *REFUSALS, "label-tree", "means")
    *told, ours, theirs = done.stdout.splitlines()
    for name, line in zip(REFUSALS, told, strict=True):
        assert line.startswith(REFUSALS[name])
    assert ours.startswith("TrainerSpec(name='label-tree'") and theirs.startswith(
        "TrainerSpec(name='means'"
    )


def test_our_own_trainer_stays_where_a_package_has_its_name(
    installed: Path, tmp_path: Path
) -> None:
    words = (
        "--data",
        installed / "rows.jsonl",
        "--model",
        "m",
        "--store",
        tmp_path / "s",
        "--json",
    )
    done = xylem(installed, "train", "ovr", *words)
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    (warning,) = [line for line in said if line["event"] == "trainer_refused"]
    assert "found that of a trainer of Xylem in xylem-one 1.0" in warning["detail"]
