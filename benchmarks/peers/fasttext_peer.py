"""fastText, supervised. Runs in the peer's environment; one JSON line a figure.

    python fasttext_peer.py train WORK --loss hs|softmax --dim D --rate R --epochs N
    python fasttext_peer.py predict WORK

Reads WORK/train.ft or WORK/test.ft, a row a line; `predict` writes the label that it answers for each row,
one a line, -1 for none, to WORK/fasttext.found. One thread. Training reads the file anew in each pass, which
counts; it puts one word of its own, the end of the line, on every row.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import fasttext
from figures import say

LABEL = "__label__"


def train(work: Path, loss: str, dim: int, rate: float, epochs: int) -> None:
    start = time.process_time()
    model = fasttext.train_supervised(
        str(work / "train.ft"),
        loss=loss,
        dim=dim,
        lr=rate,
        epoch=epochs,
        thread=1,
        minCount=1,
        minn=0,
        maxn=0,
        wordNgrams=1,
        bucket=0,
        verbose=0,
    )
    say("train_seconds", time.process_time() - start)
    model.save_model(str(work / "fasttext.bin"))


def predict(work: Path) -> None:
    model = fasttext.load_model(str(work / "fasttext.bin"))
    rows = (work / "test.ft").read_text().splitlines()
    model.predict(rows[:100])
    start = time.process_time()
    found = model.predict(rows)[0]
    say("predict_us_per_row", 1e6 * (time.process_time() - start) / len(rows))
    labels = (row[0].removeprefix(LABEL) if row else "-1" for row in found)
    (work / "fasttext.found").write_text("\n".join(labels) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["train", "predict"])
    parser.add_argument("work", type=Path)
    parser.add_argument("--loss", default="hs")
    parser.add_argument("--dim", type=int, default=50)
    parser.add_argument("--rate", type=float, default=0.5)
    parser.add_argument("--epochs", type=int, default=15)
    given = parser.parse_args()
    if given.command == "train":
        train(given.work, given.loss, given.dim, given.rate, given.epochs)
    else:
        predict(given.work)


if __name__ == "__main__":
    main()
