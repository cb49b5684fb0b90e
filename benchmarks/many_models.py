"""A store of many models, of which a server has a few open: `python -m benchmarks.many_models`.

The models are copies of a model of the texts of examples/debtags, of 3 MB, with other names of
labels. Files that do not change are one file with many names.
"""

import argparse
import dataclasses
import itertools
import re
import time
from pathlib import Path
from statistics import median

import orjson

from benchmarks.client import closed_loop, one_by_one, post
from benchmarks.requests import EXAMPLES, described
from benchmarks.runs import note
from benchmarks.server import ROOT, cpu_nanoseconds, run_cli, served
from xylem_store.fs import FileSystem
from xylem_store.manifest import Manifest
from xylem_store.names import all_names, build_names
from xylem_store.store import Store
from xylem_store.version import Draft, Model

OPEN_MAX = 200
IDLE_SECONDS = 30.0
HOT_SECONDS = 5.0
TURNS = 3


class NotSynced(FileSystem):
    """A file system that does not wait for the medium: 10,000 models are published in minutes."""

    def fsync(self, fd: int) -> None:
        """Return at once."""

    def fsync_dir(self, path: Path) -> None:
        """Return at once."""


def draft_of(store: Store, model: Model, labels: list[str]) -> Draft:
    """Return a version with other names of labels; its other arrays are linked."""
    manifest = model.manifest
    shared = {field.name for field in dataclasses.fields(Draft)} & {
        field.name for field in dataclasses.fields(Manifest)
    }
    files = store.files_of(model, model.arrays)
    core = Draft(
        **{name: getattr(manifest, name) for name in shared - {"arrays"}},
        ensemble=model.ensemble,
        labels=build_names(labels),
    )
    return dataclasses.replace(
        core,
        extra={name: model.arrays[name] for name in model.arrays.keys() - core.arrays().keys()},
        files={name: file for name, file in files.items() if not name.startswith("labels/")},
    )


def make_store(source: Store, root: Path, n_models: int) -> Store:
    """Return a store with so many models, made if there is none there."""
    store = Store(root, fs=NotSynced())
    ready = root.with_suffix(".ready")
    if not ready.exists():
        note(f"publishes {n_models:,} models")
        model = source.open("text")
        names = all_names(model.labels)
        for number in range(n_models):
            labels = [f"{number:05}-{name}" for name in names]
            store.publish(f"m-{number:05}", draft_of(source, model, labels))
        ready.touch()
    return store


def private_bytes(pid: int) -> int:
    """Return the memory that a process has for itself."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return 1024 * sum(map(int, re.findall(r"Private_\w+: +(\d+) kB", lines)))


def measure(store: Path, n_models: int, requests: list[bytes]) -> dict[str, float | str]:
    """Return the figures of a server with a bound on a store."""
    variables = {"XYLEM_MODELS_LOADED": str(OPEN_MAX), "XYLEM_ACCESS_LOG": "false"}
    with served(store, 1, own_database=True, variables=variables) as (pid, ready_seconds, port):
        figures: dict[str, float | str] = {"ready_seconds": ready_seconds}
        cold = []
        for number in range(min(n_models, OPEN_MAX)):
            request = requests[number % n_models].replace(b"m-00000", b"m-%05d" % number)
            cold.append(1000 * one_by_one(port, [request], 0.0001))
        figures["first_answer_ms"] = f"{median(cold):.1f}, at most {max(cold[1:] or cold):.1f}"
        figures["private_mb"] = private_bytes(pid) / 1e6
        before = cpu_nanoseconds(pid)
        time.sleep(IDLE_SECONDS)
        figures["idle_percent"] = (cpu_nanoseconds(pid) - before) / IDLE_SECONDS / 1e7
        figures["hot_us"] = 1e6 * one_by_one(port, requests, HOT_SECONDS)
        figures["hot_a_second"] = closed_loop(port, requests, HOT_SECONDS)
    return figures


def main() -> None:
    """Print the figures of a store with one model, and of one with many, in turns."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_models", description=__doc__)
    parser.add_argument("--models", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "out")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    source = Store(options.out / "models-source")
    if not source.models():
        arguments = ["label-tree", "--data", str(EXAMPLES / "train.jsonl.gz"), "--model", "text"]
        run_cli(ROOT, "train", *arguments, "--weights", "int8", "--store", str(source.root))
    texts = [text for text, _ in described("test")[:256]]
    path = "/v1/models/m-00000/predict"
    requests = [post(path, orjson.dumps({"instances": [{"text": text}]})) for text in texts]
    sizes = 1, options.models
    roots = {n: make_store(source, options.out / f"models-{n}", n).root for n in sizes}
    for _, n_models in itertools.product(range(TURNS), sizes):
        figures = measure(roots[n_models], n_models, requests)
        cells = (
            f"{name} {value if isinstance(value, str) else f'{value:,.2f}'}"
            for name, value in figures.items()
        )
        print(f"{n_models:6,} models: {'; '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
