"""A batch of files by threads, by a cluster of one node and of two, in turns.

    python -m benchmarks.batch_files --lines 200000 --parts 64 --repeats 3

Generated lines in `--parts` files are answered by a label tree that was trained on such lines. Each
way runs `answer_files`, which the command does, once before it counts: processes are there then,
and the version is mapped. Nodes have one processor each; threads are two, as two nodes have.
"""

import argparse
import json
import random
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.runs import spread
from xylem.base import no_progress
from xylem.base.columns import DEFAULT_COLUMNS
from xylem.base.executors.local import Crew
from xylem.cli.answer_files import step_of
from xylem.extras.ray.cluster import connect
from xylem.extras.ray.crew import RayCrew
from xylem.serving.batches.parts import answer_files
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.store import Store

N_LABELS, N_WORDS, WORDS_A_LINE = 2000, 20_000, 40
WAYS = ("threads", "one node", "two nodes")
NODE = {"num_cpus": 1, "object_store_memory": 1 << 30, "include_dashboard": False}


def write_lines(path: Path, n_lines: int, rng: random.Random) -> None:
    """Texts whose words hang on their label."""
    with path.open("w") as file:
        for _ in range(n_lines):
            label = rng.randrange(N_LABELS)
            words = (
                rng.randrange(label * 10, label * 10 + 200) % N_WORDS for _ in range(WORDS_A_LINE)
            )
            text = " ".join(f"word{word}" for word in words)
            file.write(json.dumps({"text": text, "labels": [f"label{label}"]}) + "\n")


@contextmanager
def crew_of_nodes(n_nodes: int) -> Iterator[Crew]:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args=NODE)
    try:
        for _ in range(n_nodes - 1):
            cluster.add_node(**NODE)
        with connect(cluster.address) as ray:
            yield RayCrew(1, ray)
    finally:
        cluster.shutdown()


def run(way: str, root: Path) -> float:
    """Return the seconds that the batch takes in some way."""
    out, threads = root / "out", 2 if way == "threads" else 1
    step = step_of(root / "store", ("m", "", False), DEFAULT_COLUMNS, str(out), "jsonl", threads)
    seconds = 0.0
    with nullcontext(Crew(1)) if way == "threads" else crew_of_nodes(WAYS.index(way)) as crew:
        for _ in range(2):  # the first is not counted
            shutil.rmtree(out, ignore_errors=True)
            begun = time.perf_counter()
            answer_files(step, root / "data", nullcontext(crew), no_progress)
            seconds = time.perf_counter() - begun
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--parts", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    rng, found = random.Random(0), {way: list[float]() for way in WAYS}
    with TemporaryDirectory() as directory:
        root = Path(directory)
        (root / "data").mkdir()
        write_lines(root / "train.jsonl", 20_000, rng)
        for number in range(asked.parts):
            write_lines(root / "data" / f"{number:04}.jsonl", asked.lines // asked.parts, rng)
        request = TrainRequest(trainer="label-tree", data=root / "train.jsonl", threads=2)
        train_and_publish(Store(root / "store"), "m", request)
        for _ in range(asked.repeats):
            for way in WAYS:
                found[way].append(run(way, root))
                print(f"{way}: {asked.lines / found[way][-1]:,.0f} lines/s", flush=True)
    best = {way: min(seconds) for way, seconds in found.items()}
    for way in WAYS:
        print(f"{way}: {spread(found[way], 2)} s, {asked.lines / best[way]:,.0f} lines/s at best")
    print(f"two nodes over one: {best['one node'] / best['two nodes']:.2f}")
    print(f"two nodes over two threads: {best['threads'] / best['two nodes']:.2f}")


if __name__ == "__main__":
    main()
