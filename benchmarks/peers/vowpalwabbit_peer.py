"""Vowpal Wabbit's --log_multi, its LOMtree. Runs in the peer's environment; one JSON line a figure.

    python vowpalwabbit_peer.py train WORK --splits N --passes N
    python vowpalwabbit_peer.py predict WORK

Reads WORK/train.vw or WORK/test.vw; `predict` writes the label (from 1) that it answers for each row, one a
line, to WORK/vw.found. What is timed is the library's own driver on its binary cache of the rows, which an
untimed run makes.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import vowpalwabbit
from figures import say


def run(options: str) -> float:
    """Run the library's own driver; return the seconds."""
    start = time.perf_counter()
    vowpalwabbit.Workspace(f"--quiet {options}").finish()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["train", "predict"])
    parser.add_argument("work", type=Path)
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--passes", type=int, default=1)
    given = parser.parse_args()
    work = given.work
    if given.command == "train":
        # log_multi takes one more than its inner nodes; 2^24 weights, so that they do not collide much
        learn = f"--log_multi {given.splits + 1} -b 24 --holdout_off --passes {given.passes}"
        options = f"-d {work / 'train.vw'} --cache_file {work / 'train.cache'} {learn} -f {work / 'vw.model'}"
    else:
        answer = f"-t -i {work / 'vw.model'} -p {work / 'vw.found'}"
        options = f"-d {work / 'test.vw'} --cache_file {work / 'test.cache'} {answer}"
    run(f"{options} -k")
    seconds = run(options)
    print()  # the library writes to standard output, not always whole lines
    say(f"{given.command}_seconds", seconds)


if __name__ == "__main__":
    main()
