"""Print tables of figures, ours beside the peers': `python -m benchmarks [TABLE ...] --data DIR ...`."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import latency, quality, server, training
from benchmarks.data import prepare
from benchmarks.runs import Settings
from benchmarks.systems import SYSTEMS

ROOT = Path(__file__).resolve().parents[1]
TABLES = {
    "training": training.run,
    "quality": quality.run,
    "latency": latency.run,
    "start": server.start,
    "memory": server.memory,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"{', '.join(TABLES)}; all if left out")
    parser.add_argument("--data", nargs="+", type=Path, default=[ROOT / "examples" / "debtags"])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "out")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--without-peers", action="store_true")
    given = parser.parse_args()
    unknown = [table for table in given.tables if table not in TABLES]
    if unknown:
        parser.error(f"expected tables of {', '.join(TABLES)}, found {', '.join(unknown)}")
    systems = [system for system in SYSTEMS if not given.without_peers or system.name.startswith("Xylem")]
    data = [prepare(directory, given.out) for directory in given.data]
    settings = Settings(data, given.threads, given.repeats, systems)
    for table in given.tables or TABLES:
        TABLES[table](settings)


if __name__ == "__main__":
    main()
