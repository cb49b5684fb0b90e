"""Labels taken out of a data set, and added again: precision and
processor time, beside training again.

python -m benchmarks.extending --train FILE --test FILE [--trainer NAME] [--labels N ...] [--seeds
N]
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xylem.base import no_progress
from xylem.base.executors.local import Crew
from xylem.base.rows import LabelRows, offsets
from xylem.engine.combined_predictor import make_predictor
from xylem.engine.predictor import PredictOptions
from xylem.evaluation import Labelled
from xylem.evaluation.ranking import PredictedRows, mark_true, rows_of
from xylem.trainers.registry import train, trainer
from xylem.trainers.source import Tools, TrainingSet
from xylem.trainers.spec import Trained
from xylem.workflows.choose_features import trial_model
from xylem.workflows.labelled import read_labelled_with
from xylem.workflows.prepared import prepare_in_memory
from xylem.workflows.request import TrainRequest


def main() -> None:
    """Print a line for each number of labels and each seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--test", type=Path, required=True)
    parser.add_argument("--trainer", default="label-tree")
    parser.add_argument("--labels", type=int, nargs="+", default=[100, 500])
    parser.add_argument("--seeds", type=int, default=1)
    asked = parser.parse_args()
    request = TrainRequest(trainer=asked.trainer, data=asked.train)
    source = prepare_in_memory(request, request.chosen(), Crew(request.threads), no_progress)
    test = read_labelled_with(source.names, source.featurizer, asked.test, no_progress)
    print(
        "labels  seed  rows  with new: before, added, again  others: before, added, again  "
        "time, share"
    )
    for n_new in asked.labels:
        for seed in range(asked.seeds):
            print(n_new, seed, *_measured(asked.trainer, source.data, test, n_new, seed))


def _measured(
    name: str, data: TrainingSet, test: Labelled, n_new: int, seed: int
) -> tuple[Any, ...]:
    """Return the rows with new labels, the precisions, and the
    share of a training's processor time.
    """
    n_labels = data.labels.n_labels
    in_both = (np.bincount(part.indices, minlength=n_labels) for part in (data.labels, test.labels))
    new = np.random.default_rng(7).choice(
        np.flatnonzero(np.minimum(*in_both)), n_new, replace=False
    )
    is_new = np.zeros(n_labels, np.bool_)
    is_new[new] = True
    number = np.argsort(np.argsort(is_new, kind="stable")).astype(np.int32)
    whole, of_test = (_renumbered(part, number, n_labels) for part in (data.labels, test.labels))
    without = _renumbered(data.labels, number, n_labels - n_new)
    parameters, grows = (
        TrainRequest(trainer=name, data=Path()).chosen().trainer,
        trainer(name).growth,
    )
    assert grows is not None
    growth, full = grows(parameters, data.rows), TrainingSet(data.rows, whole)
    seconds, trained = _timed(lambda: train(name, parameters, data.rows, without, seed, 1), 2)
    tools, old = Tools(seed, Crew(1)), trial_model(trained, n_labels - n_new, data.rows.n_features)
    added, grown = _timed(lambda: growth.extend(old, full, tools), 6)
    again = train(name, parameters, data.rows, whole, seed, 1)

    def precisions(made: Trained, n: int) -> NDArray[np.float64]:
        model = trial_model(made, n, data.rows.n_features)
        found = make_predictor(model).predict(test.rows, PredictOptions(top_r=5), 1)
        is_true = mark_true(PredictedRows(found.ptr, found.labels), of_test)
        hits = np.bincount(rows_of(found.ptr), is_true, test.n_rows) / 5
        return np.round([100 * hits[has_new].mean(), 100 * hits[~has_new].mean()], 2)

    has_new = (
        np.bincount(rows_of(of_test.indptr), of_test.indices >= n_labels - n_new, test.n_rows) > 0
    )
    grown_tree = replace(trained, ensemble=grown.ensemble)
    models = (trained, n_labels - n_new), (grown_tree, n_labels), (again, n_labels)
    figures = np.array([precisions(*model) for model in models]).T
    n_rows = int(np.bincount(data.labels.indices, minlength=n_labels)[new].sum())
    return n_rows, *figures.tolist(), f"{added:.2f} s", f"{100 * added / seconds:.1f}%"


def _timed(work: Callable[[], Any], turns: int) -> tuple[float, Any]:
    """Return the median processor time of some calls, without a first one, and the result.

    The first call gets its memory from the system, which takes longer than to write to it.
    """
    found, seconds = work(), []
    for _ in range(turns):
        del found
        before = process_time()
        found = work()
        seconds.append(process_time() - before)
    return float(np.median(seconds)), found


def _renumbered(labels: LabelRows, number: NDArray[np.int32], n_labels: int) -> LabelRows:
    """Return labels by other numbers, those from n_labels on left out."""
    rows, ids = rows_of(labels.indptr), number[labels.indices]
    order = np.lexsort((ids, rows))
    order = order[ids[order] < n_labels]
    return LabelRows(
        offsets(np.bincount(rows[order], minlength=labels.n_rows)), ids[order], n_labels
    )


if __name__ == "__main__":
    main()
