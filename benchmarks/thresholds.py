"""Thresholds for macro-F: F-measures on test rows, milliseconds a row and nodes visited, by method.

A table as Jasinska et al. 2016 has it (tables 2 and 4): a model of 80% of the training rows,
thresholds tuned on the other 20%, start values too. Fixed 0.5 and the first five labels stand
beside them.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from benchmarks.data import Prepared
from benchmarks.peers.figures import timed
from benchmarks.runs import Settings, note, show
from xylem.base.rows import SparseRows
from xylem.engine.all_labels import predict_all
from xylem.engine.combined_predictor import make_predictor
from xylem.engine.predictor import PredictOptions, Predictor
from xylem.engine.searcher import Searcher
from xylem.evaluation import EmptyConvention, FMeasures, Labelled, PredictedRows, Truth, f_measures
from xylem.thresholds.store.codec import METHODS
from xylem.thresholds.tuning import TuneRequest
from xylem.workflows.labelled import read_labelled
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem.workflows.tuning import tune
from xylem_store.store import Store
from xylem_store.version import Model

SHARE = 0.8
CUT = 5
CONVENTIONS: tuple[EmptyConvention, ...] = ("one", "zero")
_COUNTED_ROWS = 300
_TIMED_TOP_R = 100
"""Timed as served, with room for so many labels a row: room for all
labels costs more than the search.
"""

_COLUMNS = (
    "",
    "valid macro-F",
    "macro-F",
    "micro-F",
    "instance-F",
    "labels a row",
    "nodes a row",
    "ms a row",
    "beam: macro-F",
    "ms a row",
)


class Line(NamedTuple):
    """A method: what it predicts with, exactly, and its F-measures
    on the validation and the test rows.
    """

    name: str
    options: PredictOptions
    validation: FMeasures
    test: FMeasures


def run(settings: Settings) -> None:
    for data in settings.data:
        for trainer in settings.trainers or ("label-tree",):
            model = model_of(data, trainer, settings.threads)
            for empty in CONVENTIONS:
                rows = [
                    _cells(model, line, data, empty, settings)
                    for line in _lines(model, data, empty, settings)
                ]
                title = (
                    f"{data.name}, {trainer}, empty labels count {empty}; tuned on "
                    f"{1 - SHARE:.0%} of "
                    f"{data.n_rows:,} training rows, {data.n_labels:,} labels; percent of "
                    "the test rows"
                )
                show(settings, title, _COLUMNS, rows)


def split(data: Prepared) -> Path:
    """Return the directory of the parts of a data set, written if they are not there."""
    work = data.work / "thresholds"
    if not (work / "ready").exists():
        work.mkdir(exist_ok=True)
        rows = sp.load_npz(data.work / "train.rows.npz").tocsr()
        labels = sp.load_npz(data.work / "train.labels.npz").tocsr()
        order = np.random.default_rng(0).permutation(rows.shape[0])
        cut = int(SHARE * len(order))
        for part, chosen in (("train", np.sort(order[:cut])), ("valid", order[cut:])):
            sp.save_npz(work / f"{part}.X.npz", rows[chosen])
            sp.save_npz(work / f"{part}.Y.npz", labels[chosen])
        sp.save_npz(work / "test.X.npz", sp.load_npz(data.work / "test.rows.npz"))
        sp.save_npz(work / "test.Y.npz", sp.load_npz(data.work / "test.labels.npz"))
        (work / "ready").touch()
    return work


def model_of(data: Prepared, described: str, threads: int) -> Model:
    """Return the model of the larger part by
    NAME[:key=value,key=value], trained if it is not there.
    """
    work = split(data)
    store = Store(work / "store")
    model = re.sub(r"[:=,]", "-", described)
    if model not in {info.name for info in store.models()}:
        note(f"{data.name}: {described} trains")
        trainer, _, items = described.partition(":")
        parameters = items.split(",") if items else ()
        request = TrainRequest(
            trainer=trainer, data=work / "train.X.npz", parameters=parameters, threads=threads
        )
        train_and_publish(store, model, request)
    return store.open(model, "latest")


def quiet(phase: str, done: int, total: int) -> None:
    """Report nothing."""


def _lines(
    model: Model, data: Prepared, empty: EmptyConvention, settings: Settings
) -> Iterator[Line]:
    """Yield the fixed rules and every method."""
    work, predictor = split(data), make_predictor(model)
    files = work / "valid.X.npz", work / "test.X.npz"
    parts = [read_labelled(model, file, quiet) for file in files]
    fixed = {
        "fixed 0.5": PredictOptions(threshold=0.5, top_r=model.manifest.n_labels),
        f"first {CUT}": PredictOptions(top_r=CUT, exact=True),
    }
    for name, options in fixed.items():
        yield Line(
            name,
            options,
            *(_f(predictor, part, options, empty, settings.threads) for part in parts),
        )
    note(f"{data.name}: tuning")
    for outcome in tune(
        model, TuneRequest(METHODS, *files, empty, threads=settings.threads), quiet
    ):
        tuned = outcome.tuned
        prepared = predictor.node_thresholds(tuned.thresholds)
        name = tuned.method
        if name == "ofo":
            name = f"ofo (a = {tuned.start.a:g}, b = {tuned.start.b:g})"
        assert outcome.test is not None
        options = PredictOptions(threshold=prepared, exact=True, top_r=model.manifest.n_labels)
        yield Line(name, options, outcome.validation, outcome.test)


def _f(
    predictor: Searcher,
    part: Labelled,
    options: PredictOptions,
    empty: EmptyConvention,
    threads: int,
) -> FMeasures:
    return f_measures(_decide(predictor, part.rows, options, threads), known_of(part), empty)


def known_of(part: Labelled) -> Truth:
    """Return what is true of rows, without labels that the model does not know."""
    return Truth(part.labels, np.zeros(part.n_rows, np.int32))


def _decide(
    predictor: Searcher, rows: SparseRows, options: PredictOptions, threads: int
) -> PredictedRows:
    if options.threshold is not None:
        return PredictedRows(
            *predict_all(predictor, rows, options.threshold, threads, lambda done: None)
        )
    found = predictor.predict(rows, options, threads)
    return PredictedRows(found.ptr, found.labels)


def _cells(
    model: Model, line: Line, data: Prepared, empty: EmptyConvention, settings: Settings
) -> tuple[str, ...]:
    """Return a line of the table: what is found exactly, and what
    is served unless that is asked for.
    """
    predictor = make_predictor(model)
    test = read_labelled(model, split(data) / "test.X.npz", quiet)
    ptr, _ = _decide(predictor, test.rows, line.options, 1)
    exact = line.options._replace(top_r=min(line.options.top_r, _TIMED_TOP_R))
    served = exact._replace(exact=False)
    found = predictor.predict(test.rows, served, 1)
    by_beam = f_measures(PredictedRows(found.ptr, found.labels), known_of(test), empty)
    return (
        line.name,
        f"{line.validation.macro_f:.1f}",
        f"{line.test.macro_f:.1f}",
        f"{line.test.micro_f:.1f}",
        f"{line.test.instance_f:.1f}",
        f"{ptr[-1] / test.rows.n_rows:.1f}",
        _nodes(predictor, test.rows, line.options),
        _ms_a_row(predictor, test.rows, exact, settings.repeats),
        f"{by_beam.macro_f:.1f}",
        _ms_a_row(predictor, test.rows, served, settings.repeats),
    )


def _ms_a_row(predictor: Searcher, rows: SparseRows, options: PredictOptions, repeats: int) -> str:
    """Return the milliseconds of a row in a batch on one thread; the fastest of the
    repeats counts.
    """
    seconds = timed([lambda: predictor.predict(rows, options, 1)] * repeats)
    return f"{1000 * min(seconds) / rows.n_rows:.3f}"


def _nodes(predictor: Searcher, rows: SparseRows, options: PredictOptions) -> str:
    """Return how many nodes a row has scored, an inner product each: those that the engine stamped.

    The mean of some rows. In decision trees each inner node on the way is one, whatever the
    thresholds.
    """
    n_rows = min(_COUNTED_ROWS, rows.n_rows)
    if not isinstance(predictor, Predictor):
        costs = predictor.predict(rows.cut(0, n_rows), options._replace(costs=True)).costs
        return f"{costs[:, 0].mean():,.0f}"
    if isinstance(options.threshold, float):
        n_labels = predictor.n_labels
        thresholds = np.full(n_labels, options.threshold, np.float32)
        options = options._replace(threshold=predictor.node_thresholds(thresholds))
    assert options.exact or isinstance(options.threshold, np.ndarray)
    total = 0
    for i in range(n_rows):
        predictor.predict(rows.cut(i, i + 1), options)
        queue = predictor.pool._idle[0][-1].traversal_buffers
        total += (
            np.count_nonzero(queue.node_stamp == queue.stamp[0]) - predictor._ensemble.child_ptr[0]
        )
    return f"{total / n_rows:,.0f}"
