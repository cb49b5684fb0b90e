"""Run every command, every trainer and the calls in Python; print which kernels were compiled.

`python every_command.py DATA FOLDER [SITE]`: DATA is a file of texts with labels, FOLDER an empty
folder, and SITE a folder of packages that the installation lacks (scikit-learn, optuna). The script
imports nothing of the tests, so that it runs with an installed wheel.
"""

import contextlib
import gzip
import io
import json
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from numba.core import event

TRAINERS = {
    "label-tree": ("trees=1",),
    "ovr": (),
    "plt": (),
    "ldsm": (),
    "fastxml": ("trees=2",),
    "pfastrexml": ("trees=2",),
    "lomtree": (),
    "huffman-tree": ("epochs=2",),
    "learned-tree": ("epochs=2",),
}
N_ROWS = 240
"""Rows of the file that are used: enough for trees of several levels, and for 50 labels."""

KINDS = ("tfidf", "chars", "words+chars", "hashing")
WEIGHTS = ("float32", "bfloat16", "int8")


class Recorder(event.Listener):
    """Remembers the kernels that numba compiles in this process, and for which types."""

    def __init__(self) -> None:
        self.compiled: list[str] = []

    def on_start(self, event: Any) -> None:
        """Remember a kernel."""
        function = event.data["dispatcher"].py_func
        types = ", ".join(map(str, event.data["args"]))
        self.compiled.append(f"{function.__module__}.{function.__qualname__}({types})")

    def on_end(self, event: Any) -> None:
        """Do nothing."""


def xylem(*arguments: str | Path) -> None:
    """Run a command in this process; it must end well."""
    from xylem.cli.application import run

    sys.argv = ["xylem", *map(str, arguments)]
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
        assert run() == 0, sys.argv


def lines_of(path: Path, n_rows: int) -> list[dict[str, Any]]:
    """Return the first rows of a file."""
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in islice(file, n_rows)]


class Rows(NamedTuple):
    """Labelled rows of one kind: a file to train on, one with a part of them, and instances."""

    file: Path
    part: Path
    instances: Path


def rows_of(file: Path, part: Path, lines: Sequence[str], instances: Sequence[Any]) -> Rows:
    """Write lines into files; return them with the instances as lines of JSON."""
    file.write_text("".join(lines))
    part.write_text("".join(lines[: len(lines) // 2]))
    asked = file.with_name(f"asked-{file.stem}.jsonl")
    asked.write_text("".join(json.dumps(instance) + "\n" for instance in instances[:100]))
    return Rows(file, part, asked)


class Files:
    """The same rows as texts, as named features and as sparse rows; new labels; names of labels."""

    def __init__(self, rows: list[dict[str, Any]], folder: Path) -> None:
        texts = [json.dumps(row) + "\n" for row in rows]
        instances: list[Any] = [{"text": row["text"]} for row in rows]
        self.texts = rows_of(folder / "texts.jsonl", folder / "more.jsonl", texts, instances)
        instances = [{"features": dict.fromkeys(row["text"].split()[:20], 1)} for row in rows]
        named = [
            json.dumps({**instance, "labels": row["labels"]}) + "\n"
            for instance, row in zip(instances, rows, strict=True)
        ]
        self.named = rows_of(folder / "named.jsonl", folder / "less.jsonl", named, instances)
        words = sorted({word for instance in instances for word in instance["features"]})
        labels = sorted({label for row in rows for label in row["labels"]})
        ids = {name: number for names in (words, labels) for number, name in enumerate(names)}
        indices = [sorted(ids[word] for word in row["features"]) for row in instances]
        sparse = [
            ",".join(str(ids[label]) for label in row["labels"])
            + "".join(f" {i}:1" for i in found)
            + "\n"
            for row, found in zip(rows, indices, strict=True)
        ]
        instances = [{"indices": found, "values": [1.0] * len(found)} for found in indices]
        self.sparse = rows_of(folder / "rows.svm", folder / "half.svm", sparse, instances)
        names = "".join(f"{label},{label.split('::')[-1]}\n" for label in labels)
        self.names = folder / "names.csv"
        self.names.write_text("uri,label_en\n" + names)
        self.new_labels = folder / "new.jsonl"
        new = [{**row, "labels": [f"new::{i % 2}"]} for i, row in enumerate(rows[:40])]
        self.new_labels.write_text("".join(json.dumps(row) + "\n" for row in new))


def train_everything(files: Files, store: Path) -> dict[str, Rows]:
    """Train with every trainer, kind of features and type of weights.

    Returns the models' names, each with rows of its kind.
    """
    models: dict[str, Rows] = {}
    texts = files.texts

    def train(trainer: str, rows: Rows, *options: str | Path, name: str = "") -> None:
        name = name or f"model{len(models)}"
        data = rows.part if "--from" in options and "state" not in name else rows.file
        xylem("train", trainer, "--data", data, "--model", name, "--store", store, *options)
        models[name] = rows

    def parameters(*items: str) -> list[str]:
        return [part for item in items for part in ("-p", item)]

    for trainer, chosen in TRAINERS.items():
        for rows in (texts, files.sparse, files.named):
            train(trainer, rows, "--valid", rows.part, *parameters(*chosen))
    for kind in KINDS:
        train("label-tree", texts, "--valid", texts.part, *parameters(f"features.kind={kind}"))
    train("label-tree", texts, "--calibrate", "--valid", texts.part, name="calibrated")
    for weights in WEIGHTS:
        for trainer in ("label-tree", "plt", "fastxml", "ldsm", "lomtree", "huffman-tree"):
            train(trainer, texts, "--weights", weights, "--valid", texts.part)
        name = f"grown-{weights}"
        train("label-tree", texts, "--weights", weights, name=name)
        train("label-tree", texts, "--from", name, name=name)
        extend = "extend", name, "--data", files.new_labels, "--store", store
        xylem(*extend, "--rows", texts.file)
    for loss in ("logistic", "squared_hinge"):
        train("label-tree", texts, *parameters(f"loss={loss}"), "--keep-rows", name=loss)
        train("label-tree", texts, "--from", loss, "--keep-rows", name=loss)
        xylem("extend", loss, "--data", files.new_labels, "--store", store)
    for tree in ("random", "huffman", "kmeans", "clustered", "flat"):
        train("huffman-tree", texts, *parameters(f"tree={tree}", "epochs=2"))
    for trainer in ("plt", "huffman-tree", "learned-tree", "lomtree"):
        passes = parameters("epochs=2") if trainer != "lomtree" else []
        solver = parameters("solver=sgd") if trainer == "plt" else []
        name = f"{trainer}-state"
        train(trainer, texts, *passes, *solver, "--keep-state", "--until", "1", name=name)
        train(trainer, texts, "--from", name, name=name)
    train("label-tree", texts, "--stream")
    train("plt", texts, *parameters("solver=sgd"), "--stream", "--thresholds", "ofo")
    train("label-tree", texts, "--rerank", "--valid", texts.part, name="reranked")
    xylem("try", texts.file, "--model", "tried", "--no-serve", "--store", store)
    models["tried"] = texts
    return models


def combine(files: Files, store: Path) -> dict[str, Rows]:
    """Combine versions with each ranker; search for parameters, calibrate."""
    texts = files.texts
    of_store = "--store", store
    members = "--member", "tried", "--member", "calibrated"
    names = "--vocabulary", files.names, "--language", "en"
    data = "--data", texts.file, *of_store
    xylem("combine", *members, *names, *data, "--model", "boosted", "--ranker", "boosted")
    xylem("combine", *members, *data, "--model", "linear", "--ranker", "linear")
    xylem("combine", *members, *names, *data, "--model", "near", "--rerank", texts.part)
    xylem("models", "vocabulary", "boosted", "--set", files.names, *of_store)
    xylem("tune", *data, "--model", "searched", "--trials", "2", "--trainer", "label-tree")
    xylem("models", "label-info", "tried", files.names, *of_store)
    xylem("calibrate", "tried", "--data", texts.part, *of_store)
    return dict.fromkeys(("boosted", "linear", "near", "searched", "tried"), texts)


def ask(name: str, rows: Rows, store: Path) -> None:
    """Run every command that reads a version."""
    of_store = "--store", store
    data = "--data", rows.file, *of_store
    options = [[], ["--exact"], ["--threshold", "0.3"], ["--explain"]]
    options += [["--chunk-characters", "500"]] if rows.file.name == "texts.jsonl" else []
    for chosen in options:
        xylem("predict", name, "--data", rows.instances, *chosen, *of_store)
    xylem("evaluate", name, *data)
    xylem("thresholds", name, *data, "--method", "all")
    xylem("predict", name, "--data", rows.instances, "--threshold", "tuned", *of_store)
    xylem("evaluate", name, *data)
    xylem("compare", name, name, *data)
    for command in ("show", "verify"):
        xylem("models", command, name, *of_store)
    xylem("models", "export", name, "--file", store / "model.tar", *of_store)
    xylem("models", "import", "--file", store / "model.tar", "--model", "copy", *of_store)


def call(store: Path, folder: Path) -> None:
    """Call what Python has."""
    import xylem

    model = xylem.load(store, "tried")
    texts = ["a game of chess", "a web server", "a fast text editor"] * 40
    labels = [["game"], ["server", "web"], ["editor"]] * 40
    trained = xylem.train(texts, labels, progress=False).tune_thresholds(texts, labels)
    for one in (model, trained):
        one.predict(texts, threshold="tuned")
        one.explain(texts[0])
        one.evaluate(texts, labels, progress=False)
        one.save(folder / "other", "saved")
    trained.score(texts, labels)


def main() -> None:
    """Run everything."""
    data, folder, *site = map(Path, sys.argv[1:])
    sys.path += map(str, site)
    recorder = Recorder()
    event.register("numba:compile", recorder)
    files = Files(lines_of(data, N_ROWS), folder)
    store = folder / "store"
    models = train_everything(files, store)
    if site:
        models |= combine(files, store)
    for name, rows in models.items():
        ask(name, rows, store)
    call(store, folder)
    print("\n".join(["compiled:", *recorder.compiled]))


if __name__ == "__main__":
    main()
