"""What is said where no cluster can be reached: at once, in a sentence."""

import socket
import sys
from pathlib import Path

import pytest

from service.base.errors import BadParameter, Unavailable
from service.executors import ray as executor
from tests.conftest import Run
from tests.jobs_helpers import write_data


def refusal(address: str) -> str:
    with pytest.raises((BadParameter, Unavailable)) as refused, executor.connect(address):
        pass
    return str(refused.value)


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def test_addresses_at_which_there_is_no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for address in ("here", "host:", ":1", "host:99999", "ray://host"):
        assert f"expected auto, HOST:PORT or ray://HOST:PORT, found {address!r}" in refusal(address)
    place = f"127.0.0.1:{free_port()}"
    for address in (place, f"ray://{place}"):
        assert f"expected a cluster at {place}, found none: Connection refused" in refusal(address)
    current = tmp_path / "current"
    monkeypatch.setattr(executor, "_CURRENT", current)
    assert "expected a cluster that runs on this machine, found none: ray start --head" in refusal("auto")
    current.write_text(place)  # of a cluster that is gone
    assert f"expected a cluster at {place}, found none" in refusal("auto")


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert refusal("auto").endswith("found none: pip install 'xylem-serve[ray]'")


def test_trainings_that_are_no_steps_are_refused(run_here: Run, tmp_path: Path) -> None:
    data = write_data(tmp_path / "train.jsonl", 20)
    for trainer, options, found in (
        ("lomtree", (), "found lomtree, which learns one row after the other"),
        ("huffman-tree", (), "found huffman-tree, which learns"),
        ("plt", ("-p", "solver=sgd"), "found plt, with solver=sgd, which learns row by row"),
        ("ldsm", ("--stream", "--resume"), "ray: expected rows in memory, label-tree or ovr, found a stream"),
    ):
        options = ("--data", data, "--model", "m", "--ray", "auto", *options)
        answer = run_here("train", trainer, *options, store=tmp_path / "s")
        assert answer.returncode == 2 and found in answer.stderr, answer.stderr
    assert not list(tmp_path.glob("s/models/*"))
