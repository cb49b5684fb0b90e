"""Rounds of corrections of a model that learns by a recipe: the gain that each run reports, with
its interval, beside the gain on documents that no run has seen.

python -m benchmarks.corrections --data DIR [--documents N] [--rounds N] [--corrections N]
[--seed N]

DIR has train.jsonl.gz and vocabulary.tsv, as for the table `ensembles`. Its documents are shuffled:
the first ones teach, then come those that editors see, and the rest is unseen. In each round the
served version answers twice as many documents as are corrected; those with the worst answers are.
"""

import argparse
import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import xylem
from xylem.base.db.of_store import opened_database
from xylem.thresholds.store.state import ThresholdDatabase
from xylem.workflows.learn import LearnRequest, learn_and_publish
from xylem.workflows.recipe import Recipe
from xylem_store.store import Store

FIGURE = "F1@5"

Row = dict[str, Any]


def main() -> None:
    """Print a line of JSON for each round."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--language", default="fi")
    parser.add_argument("--documents", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--corrections", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with gzip.open(options.data / "train.jsonl.gz", "rt") as file:
        documents = list(map(json.loads, file))
    random.Random(options.seed).shuffle(documents)
    with TemporaryDirectory() as directory:
        for facts in measured(documents, Path(directory), options):
            print(json.dumps(facts), flush=True)


def measured(documents: list[Row], home: Path, options: argparse.Namespace) -> Any:
    """Yield the facts of each round; of round 0 those of the first version."""
    taught = documents[: options.documents]
    n_seen = options.documents + 2 * options.corrections * options.rounds
    unseen = documents[n_seen:]
    (home / "documents.jsonl").write_text("".join(json.dumps(row) + "\n" for row in taught))
    recipe = Recipe.from_json(
        {
            "vocabulary": str(options.data / "vocabulary.tsv"),
            "language": options.language,
            "sources": [{"file": str(home / "documents.jsonl")}],
            "seed": options.seed,
        }
    )
    store = Store(home / "store")
    _, seconds = learnt(store, recipe, [])
    yield {"round": 0, "seconds": seconds, "unseen_documents": len(unseen)}
    events: list[bytes] = []
    for number in range(options.rounds):
        first = options.documents + 2 * options.corrections * number
        shown = documents[first : first + 2 * options.corrections]
        old = xylem.load(store.root, "m")
        corrected = worst_answered(old, shown)[: options.corrections]
        events += [json.dumps(row).encode() for row in corrected]
        report, seconds = learnt(store, recipe, events)
        new = xylem.load(store.root, f"m@{report['version']}")
        gains = old.compare(new, *columns_of(unseen), progress=False)["metrics"]
        reported = report["judges"]["figures"][FIGURE]
        gain = gains[FIGURE]
        yield {
            "round": number + 1,
            "judges": report["judges"]["rows"],
            "reported": [round(reported[part], 2) for part in ("difference", "low", "high")],
            "unseen": [round(gain[part], 2) for part in ("difference", "low", "high")],
            "figures": [round(gain[version], 2) for version in ("a", "b")],
            "is_inside": reported["low"] <= gain["difference"] <= reported["high"],
            "promoted": report["promotion"]["promoted"],
            "seconds": seconds,
        }


def learnt(store: Store, recipe: Recipe, events: Sequence[bytes]) -> tuple[Row, float]:
    """Run the recipe; return the report, and the processor time in seconds."""
    request = LearnRequest(recipe, {name: Path(name) for name in recipe.files}, events, threads=2)
    start = process_time()
    with opened_database(store.root, create=True) as database:
        report = learn_and_publish(store, "m", request, ThresholdDatabase(database))
    return report, round(process_time() - start, 1)


def worst_answered(model: Any, rows: list[Row]) -> list[Row]:
    """Return rows by how few of their labels are among the first five, the fewest first."""
    answers = model.predict([row["text"] for row in rows], top_r=5)
    shares = [
        len({label for label, _ in answer}.intersection(row["labels"])) / len(row["labels"])
        for answer, row in zip(answers, rows, strict=True)
    ]
    return [row for _, row in sorted(zip(shares, rows, strict=True), key=lambda pair: pair[0])]


def columns_of(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Return the texts and the labels of rows."""
    return [row["text"] for row in rows], [row["labels"] for row in rows]


if __name__ == "__main__":
    main()
