"""Print tables of figures, ours beside the peers': `python -m
benchmarks [TABLE ...] --data DIR ...`.
"""

import argparse
from pathlib import Path

from benchmarks import (
    ensembles,
    fairness,
    growth,
    grpc_calls,
    http,
    matching,
    predictions,
    requests,
    server,
    starts,
    thresholds,
    trainers,
    training,
    vectors,
)
from benchmarks.data import prepare_splits
from benchmarks.runs import Settings
from benchmarks.systems import SYSTEMS, installed
from xylem_store.build import CHILDREN_MAX

ROOT = Path(__file__).resolve().parents[1]
TABLES = {
    "training": training.run,
    "quality": predictions.quality,
    "latency": predictions.latency,
    "http": http.run,
    "fairness": fairness.run,
    "requests": requests.run,
    "grpc": grpc_calls.run,
    "growth": growth.run,
    "matching": matching.run,
    "ensembles": ensembles.run,
    "thresholds": thresholds.run,
    "trainers": trainers.run,
    "starts": starts.run,
    "memory": server.memory,
    "vectors": vectors.run,
}
WITH_PEERS = {"training", "quality", "latency"}
WITH_DATA = {*WITH_PEERS, "http", "fairness", "thresholds", "trainers", "memory"}


def split_numbers(text: str) -> range:
    """Return the numbers that FIRST-LAST, or one number, says."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "tables", nargs="*", metavar="TABLE", help=f"{', '.join(TABLES)}; all if left out"
    )
    parser.add_argument("--data", nargs="+", type=Path, default=[ROOT / "examples" / "debtags"])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "out")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--without-peers", action="store_true")
    parser.add_argument(
        "--peers", nargs="+", metavar="NAME", help="only these, by how their names begin"
    )
    parser.add_argument(
        "--labels", nargs="+", type=int, default=growth.SIZES, help="sizes of trees"
    )
    parser.add_argument(
        "--train", action="store_true", help="`growth`: train on generated rows of these sizes"
    )
    parser.add_argument("--weights", choices=CHILDREN_MAX, default="float32", help="their weights")
    parser.add_argument(
        "--trainers",
        nargs="+",
        default=[],
        metavar="NAME[:KEY=VALUE,...]",
        help="trainers of `trainers` (all if left out) and `thresholds` (label-tree)",
    )
    parser.add_argument(
        "--splits",
        type=split_numbers,
        default=(),
        metavar="FIRST-LAST",
        help="official splits of the data sets that have some; their train and test files if "
        "left out",
    )
    parser.add_argument(
        "--against",
        type=Path,
        metavar="DIR",
        help="another checkout, measured in turns by `requests` and `starts`",
    )
    given = parser.parse_args()
    unknown = [table for table in given.tables if table not in TABLES]
    if unknown:
        parser.error(f"expected tables of {', '.join(TABLES)}, found {', '.join(unknown)}")
    tables = given.tables or list(TABLES)
    wanted = () if given.without_peers else tuple(given.peers or [""])
    systems = [system for system in SYSTEMS if system.name.startswith(("Xylem", *wanted))]
    if WITH_PEERS.intersection(tables):
        systems = installed(systems)
    paths = given.data if WITH_DATA.intersection(tables) else []
    data = [
        prepared for path in paths for prepared in prepare_splits(path, given.splits, given.out)
    ]
    given.out.mkdir(parents=True, exist_ok=True)
    how = (
        given.threads,
        given.repeats,
        systems,
        given.labels,
        given.weights,
        given.trainers,
        given.against,
    )
    settings = Settings(data, given.out, *how, directories=given.data, trains=given.train)
    for table in tables:
        TABLES[table](settings)


if __name__ == "__main__":
    main()
