"""A tour of models in Python: train, predict, evaluate, explain, tune,
save, load; no server, on `debtags/`.

`python examples/python_tour.py [ROWS]` reads the first ROWS training rows, 4,000 when left out.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from itertools import islice
from pathlib import Path

import xylem

DATA = Path(__file__).resolve().parent / "debtags"
ROWS = 4000
QUESTIONS = [
    "a fast text editor for the terminal with syntax highlighting",
    "real-time strategy game in space, play against friends over the network",
    "Python bindings for a library that reads and writes JPEG and PNG pictures",
]
"""Descriptions of programs, typed as a person would: none of them is in the data set."""


def read(name: str, n_rows: int) -> tuple[list[str], list[list[str]]]:
    """Return the texts and the labels of the first rows of a file."""
    with gzip.open(DATA / name, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in islice(file, n_rows)]
    return [row["text"] for row in rows], [row["labels"] for row in rows]


def main(n_rows: int) -> None:
    """Go through all of it, and say what is found."""
    texts, labels = read("train.jsonl.gz", n_rows)
    test_texts, test_labels = read("test.jsonl.gz", n_rows // 4)

    print("1. Train: the parameters are those of `xylem train`.")
    model = xylem.train(texts, labels, trainer="label-tree", trees=1, features_ngram_max=2)
    print(f"   {model}\n")

    print("2. Predict: labels with their probabilities, the best first.")
    for question, found in zip(QUESTIONS, model.predict(QUESTIONS, top_r=3), strict=True):
        print(f"   {question}")
        print("     " + ", ".join(f"{label} {score:.2f}" for label, score in found))
    sure = model.predict(QUESTIONS, top_r=100, threshold=0.5)
    print(f"   With a score of 0.5 at least: {[len(row) for row in sure]} labels\n")

    print(f"3. Evaluate on {len(test_texts)} rows that it has not seen, in percent.")
    report = model.evaluate(test_texts, test_labels)
    print(
        "   " + ", ".join(f"{name} {report[name]:.1f}" for name in ("P@1", "P@5", "macro_f")) + "\n"
    )

    print("4. Explain: the words that counted at the root of the tree.")
    best = model.explain(QUESTIONS[0], top_r=1)[0]
    node = best["explanation"]["trees"][0]["path"][0]
    print(f"   {best['label']}: {', '.join(part['feature'] for part in node['features'])}\n")

    print(
        "5. Tune a threshold for each label on half of these rows, and measure on the other half."
    )
    half = len(test_texts) // 2
    others = test_texts[half:], test_labels[half:]
    tuned = model.tune_thresholds(test_texts[:half], test_labels[:half])
    before, after = (each.evaluate(*others)["macro_f"] for each in (model, tuned))
    print(f"   macro-F {before:.1f} at 0.5, {after:.1f} at tuned thresholds\n")

    print("6. Save in a store, as `xylem serve` serves it, and load it again.")
    with tempfile.TemporaryDirectory() as store:
        version = tuned.save(store, "debtags")
        again = xylem.load(store, f"debtags@{version}")
        same = again.predict(QUESTIONS) == model.predict(QUESTIONS)
        print(f"   debtags@{version} answers {'the same' if same else 'otherwise'}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
