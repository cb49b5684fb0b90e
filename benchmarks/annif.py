"""Ours beside Annif's omikuji backend on German texts: `python -m benchmarks.annif --annif COMMAND`.

COMMAND is the program `annif` of an environment with `annif[omikuji]`. Both get the same texts and answer
with five labels a text of the test part; one count of the hits for all.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.german_set import URI, described_packages, write_set
from model_store.store import Store
from service.workflows.train import TrainRequest, train_and_publish

LISTS = Path("/var/lib/apt/lists")
TOP = 5
ANALYZERS = ("simple", "snowball(german)", "simplemma(de)")
SHAPES = {
    "its defaults": "",
    "shape of Bonsai": "cluster_balanced=False\ncluster_k=100\nmax_depth=3\n",
}
OURS = {
    "label-tree, one tree": ("label-tree", []),
    "label-tree, three trees": ("label-tree", ["trees=3"]),
}
FEATURES = ("auto", "words", "words, stems")
GIVEN = {
    "auto": ["features.kind=auto"],
    "words": ["features.kind=tfidf"],
    "words, stems": ["features.kind=tfidf", "features.stem=de"],
}

PROJECT = """[german]
name=German
language=de
backend=omikuji
analyzer={analyzer}
vocab=debtags
limit=5
{shape}"""


def processor_seconds() -> float:
    """Return the processor time of the programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def precision(found: Sequence[Sequence[str]], truth: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return P@1, P@3 and P@5 in percent; a text with fewer answers has no hit in those missing."""
    return {
        f"P@{k}": round(
            100
            * sum(len(set(labels[:k]) & set(true)) for labels, true in zip(found, truth, strict=True))
            / (k * len(truth)),
            2,
        )
        for k in (1, 3, 5)
    }


def ask_annif(command: Path, analyzer: str, shape: str, out: Path) -> list[list[str]]:
    """Train a project of Annif's anew; return the best labels of each text of the test part."""
    work = out / "annif"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (work / "projects.cfg").write_text(PROJECT.format(analyzer=analyzer, shape=shape))
    environment = {
        **os.environ,
        "ANNIF_DATADIR": str(work / "data"),
        "ANNIF_PROJECTS": str(work / "projects.cfg"),
    }

    def annif(*arguments: str) -> None:
        with (work / "annif.log").open("ab") as log:
            subprocess.run([command, *arguments], env=environment, check=True, stdout=log, stderr=log)

    annif("load-vocab", "--language", "de", "debtags", str(out / "vocabulary.tsv"))
    annif("train", "--jobs", "1", "german", str(out / "train.tsv"))
    annif(
        "index", "--limit", str(TOP), "--output", str(work / "found.jsonl"), "german", str(out / "test.tsv")
    )
    lines = (work / "found.jsonl").read_text().splitlines()
    return [[result["uri"].removeprefix(URI) for result in json.loads(line)["results"]] for line in lines]


def train_ours(trainer: str, given: list[str], out: Path) -> dict[str, object]:
    """Train on the same texts; return the figures of the test part, and the features that were taken."""
    request = TrainRequest(
        trainer, out / "train.jsonl", valid=out / "test.jsonl", parameters=given, threads=1
    )
    report = train_and_publish(Store(out / "store"), "german", request)
    figures = {name: round(report.metrics[name], 2) for name in ("P@1", "P@3", "P@5")}
    return {**figures, "features": (report.features or {}).get("chosen", "")}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.annif", description=__doc__)
    parser.add_argument("--annif", type=Path, required=True, metavar="COMMAND")
    parser.add_argument("--analyzers", nargs="+", default=ANALYZERS)
    parser.add_argument("--lists", type=Path, default=LISTS, help="where apt keeps its lists")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "out" / "german")
    given = parser.parse_args()
    packages = described_packages(given.lists)
    write_set(packages, given.out)
    truth = [package.labels for package in packages if package.is_test]
    n_train = len(packages) - len(truth)
    print(json.dumps({"train": n_train, "test": len(truth)}), flush=True)
    for name, (trainer, parameters) in OURS.items():
        for features in FEATURES:
            start = time.process_time()
            figures = train_ours(trainer, [*parameters, *GIVEN[features]], given.out)
            seconds = round(time.process_time() - start, 1)
            print(json.dumps({"ours": name, "given": features, **figures, "seconds": seconds}), flush=True)
    for analyzer in given.analyzers:
        for name, shape in SHAPES.items():
            start = processor_seconds()
            found = ask_annif(given.annif, analyzer, shape, given.out)
            seconds = round(processor_seconds() - start, 1)
            figures = {"annif": analyzer, "tree": name, **precision(found, truth), "seconds": seconds}
            print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
