"""Tune a version's thresholds on labelled rows: what `xylem thresholds` does, and its report."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from sqlalchemy import Connection

from xylem.base import (
    DEFAULT_COLUMNS,
    BadData,
    BadParameter,
    Database,
    LabelRows,
    OnProgress,
    SparseRows,
    TableColumns,
    one_step,
    writeable,
)
from xylem.engine import Searcher, make_predictor, predict_all, predict_parts
from xylem.evaluation import (
    USUAL_EMPTY,
    EmptyConvention,
    FMeasures,
    Labelled,
    PredictedRows,
    empty_convention,
    f_measures,
)
from xylem.thresholds.live.events import instances_of
from xylem.thresholds.live.shadow import put_shadow
from xylem.thresholds.live.threshold_counters import ThresholdCounters
from xylem.thresholds.methods.aims import check_objective
from xylem.thresholds.methods.estimates import (
    ESTIMATES_MAX,
    EstimateKeeper,
    Estimates,
    count_at,
    fit_power,
    mark_hits,
)
from xylem.thresholds.methods.fta import fta, sto
from xylem.thresholds.methods.ofo import (
    POWER_MIN,
    Start,
    check_start,
    counts_that_bound,
    lower_bounds,
    no_counts,
    start_for,
    thresholds_of,
)
from xylem.thresholds.methods.starts import choose_kappa, choose_start, replay
from xylem.thresholds.store.codec import METHODS, Method, Tuned
from xylem.thresholds.store.state import TUNED, lock_head, replace_state
from xylem_store import F32, I64, Model


class TuningOutcome(NamedTuple):
    """The thresholds that a method found, and how good they are.

    validation  measured on the rows that the thresholds were found on
    test        measured on other rows, if there are any
    kappa       the one that was chosen; None if the request gave it
    rejected    the requested method and its macro-F on the validation rows, if one threshold for
                all labels is better there and was taken instead; else None
    """

    tuned: Tuned
    validation: FMeasures
    test: FMeasures | None
    kappa: float | None = None
    rejected: tuple[Method, float] | None = None


def facts_of(outcome: TuningOutcome) -> dict[str, Any]:
    """Return the report on an outcome, as JSON values."""
    tuned = outcome.tuned
    facts: dict[str, Any] = {
        "method": tuned.method,
        "objective": tuned.aim.objective,
        **(
            {}
            if tuned.aim.limit is None
            else {"threshold": float(tuned.thresholds[0]), "limit": tuned.aim.limit}
        ),
        **_f_facts("validation", outcome.validation),
        **({} if outcome.test is None else _f_facts("test", outcome.test)),
        "empty_label_convention": tuned.convention,
        "labels": len(tuned.thresholds),
        "start": [tuned.start.a, tuned.start.b],
        "power": tuned.start.power,
        "scale": tuned.start.scale,
        **({} if outcome.kappa is None else {"kappa": outcome.kappa}),
    }
    if outcome.rejected is not None:
        method, macro_f = outcome.rejected
        facts |= {
            "instead_of": method,
            "instead_of_macro_f": macro_f,
            "note": f"{method} has less macro-F on the validation rows than one threshold for all "
            "labels, which is kept",
        }
    return facts


def _f_facts(part: str, f: FMeasures) -> dict[str, float]:
    return {
        f"{part}_macro_f": f.macro_f,
        f"{part}_micro_f": f.micro_f,
        f"{part}_instance_f": f.instance_f,
    }


KAPPA = 0.01
KAPPA_MIN = 1e-4
KAPPA_MAX = 0.5
# The kappa that stands for the best of `starts.C_GRID`, chosen on the validation rows.
AUTO: Literal["auto"] = "auto"

# Until the power is fitted, it is taken to be this share of the link's usual one.
#
# So too many scores are kept, of too low a probability, rather than too few.
_POWER_SHARE = 0.75

# The model is asked for estimates at most this many times.
#
# It is asked again if the fitted power is so low that thresholds may lie below the estimates that
# were kept.
_ESTIMATE_PASSES_MAX = 3


@dataclass(frozen=True)
class TuneRequest:
    """A request to tune thresholds: what to tune on, and how.

    methods  of METHODS, at least one
    valid    the labelled file to tune on: not the one that the version was trained on
    test     another one, on which the tuned thresholds are only measured
    empty    the convention of empty labels
    kappa    estimates of a lower probability are not kept, nor those below a label's lower bound;
             AUTO: it is chosen for the first method, on halves of the validation rows, and then
             used as if it had been given
    start    the start values of OFO; None: chosen on the validation rows. Its power and scale are
             not used
    columns  of files that are tables
    objective the F-measure to tune for. Other methods than ofo, and kappa, are for macro only
    """

    methods: Sequence[Method]
    valid: Path
    test: Path | None = None
    empty: EmptyConvention = USUAL_EMPTY
    kappa: float | Literal["auto"] = KAPPA
    start: Start | None = None
    threads: int = 1
    estimates_max: int = ESTIMATES_MAX
    columns: TableColumns = DEFAULT_COLUMNS
    objective: Literal["macro", "micro", "instance"] = "macro"

    def __post_init__(self) -> None:
        """Raise BadParameter for values that are unknown or out of their range."""
        for method in self.methods:
            if method not in METHODS:
                raise BadParameter(
                    f"method: expected {', '.join(METHODS)} or {ALL}, found {method!r}"
                )
        if not self.methods:
            raise BadParameter(f"method: expected some of {', '.join(METHODS)}, found none")
        empty_convention(self.empty, "empty_labels")
        if self.kappa != AUTO and not KAPPA_MIN <= self.kappa <= KAPPA_MAX:
            raise BadParameter(
                f"kappa: expected a number from {KAPPA_MIN} to {KAPPA_MAX}, found {self.kappa}"
            )
        if self.start is not None:
            check_start(self.start)
        check_objective(
            self.objective,
            self.methods,
            has_kappa=self.kappa != KAPPA,
            has_start=self.start is not None,
        )


# Called with a transaction and the report on the thresholds that it stores.
OnKeep = Callable[[Connection, dict[str, Any]], None]

# The default method: docs/thresholds.md says why.
METHOD: Method = "ofo"

# One threshold for all labels, which every other method must reach on the validation rows.
SINGLE_THRESHOLD: Method = "fta-one"

ALL = "all"  # the name that stands for all methods


def request_of(
    methods: Sequence[str] | None,
    valid: Path,
    test: Path | None,
    empty: str,
    kappa: float | Literal["auto"] | None = None,
    start: tuple[float, float] | None = None,
    threads: int = 1,
    columns: TableColumns = DEFAULT_COLUMNS,
    objective: str = "macro",
) -> TuneRequest:
    """Return the request with the options of a command or a caller, where None means the default.

    Raises BadParameter.
    """
    selected_methods: Any = METHODS if ALL in (methods or ()) else tuple(methods or (METHOD,))
    checked_objective: Any = objective
    return TuneRequest(
        methods=selected_methods,
        valid=valid,
        test=test,
        empty=empty_convention(empty, "empty_labels"),
        kappa=KAPPA if kappa is None else kappa,
        start=None if start is None else Start(*start),
        threads=threads,
        columns=columns,
        objective=checked_objective,
    )


def tune_on(
    model: Model,
    request: TuneRequest,
    on_progress: OnProgress,
    valid: Labelled,
    test: Labelled | None = None,
) -> list[TuningOutcome]:
    """Tune an opened version by each of the methods; nothing is stored. Raises BadInput.

    valid  the rows of the request's file to tune on
    test   the rows of the one to measure on, if it has one

    For macro-F, a method whose macro-F on the validation rows is below that of one threshold for
    all labels is replaced by it. The model is asked for the estimates of the validation rows
    (`_prepare`; twice with AUTO), once more by OFO, row by row, as feedback would, and once for the
    decisions of each method, and of the one threshold. Deterministic, for any number of threads.
    """
    if not len(valid.labels.indices):
        raise BadData(f"{request.valid}: expected rows with labels of the model, found none")
    task = _prepare(model, valid, request, on_progress)
    kappa = None
    if request.kappa == AUTO:
        kappa = task.best_kappa(request.methods[0])
        task = _prepare(model, valid, replace(request, kappa=kappa), on_progress)
    if request.objective != "macro":
        tuned = task.tuned(METHOD)
        figures = task.measure(tuned, valid)
        return [TuningOutcome(tuned, figures, test and task.measure(tuned, test))]
    single = task.tuned(SINGLE_THRESHOLD)
    single_f = task.measure(single, valid)
    outcomes = []
    for method in dict.fromkeys(request.methods):
        tuned = single if method == SINGLE_THRESHOLD else task.tuned(method)
        figures = single_f if tuned is single else task.measure(tuned, valid)
        rejected = None
        if figures.macro_f < single_f.macro_f:
            rejected = (method, figures.macro_f)
            tuned = single
            figures = single_f
        outcomes.append(
            TuningOutcome(tuned, figures, test and task.measure(tuned, test), kappa, rejected)
        )
    return outcomes


def keep(
    model: Model,
    database: Database,
    outcomes: Sequence[TuningOutcome],
    *,
    shadow: bool = False,
    on_keep: OnKeep | None = None,
) -> dict[str, Any]:
    """Store the first of these outcomes with an opened version, and return a report as JSON values.

    shadow   whether it is stored as a candidate, which is scored beside the thresholds in force
    on_keep  called with the report in the transaction that stores it: if it raises, nothing is
             stored

    Raises BadInput and DatabaseUnavailable: then nothing is stored.
    """
    facts = [facts_of(outcome) for outcome in outcomes]
    with database.write() as connection:
        head = lock_head(
            connection, model.manifest.model, model.manifest.version, model.manifest.digest
        )
        head = (
            put_shadow(connection, head, outcomes[0].tuned)
            if shadow
            else replace_state(connection, head, TUNED, outcomes[0].tuned)
        )
        report = {
            "model": model.manifest.model,
            "version": model.manifest.version,
            "epoch": head.epoch,
            "shadow": shadow,
            **facts[0],
            "methods": facts,
        }
        if on_keep is not None:
            on_keep(connection, report)
    return report


class _Task(NamedTuple):
    """The input of the methods: a model's estimates of the validation rows, how to read them."""

    predictor: Searcher
    valid: Labelled
    estimates: Estimates
    bounds: F32
    label_counts: I64 | None
    n_training_rows: int
    read: Start
    request: TuneRequest
    on_progress: OnProgress

    def best_kappa(self, method: Method) -> float:
        """Return the best kappa for a method; for this OFO is replayed on the estimates."""

        def find(estimates: Estimates, truth: LabelRows, bounds: F32) -> F32:
            return (
                replay(estimates, truth, bounds, self._start(estimates, truth, bounds))
                if method == "ofo"
                else self._find(method, estimates, truth, bounds)
            )

        with one_step(self.on_progress, "kappa"):
            return choose_kappa(
                self.estimates, self.valid.labels, self.bounds, find, self.request.empty
            )

    def tuned(self, method: Method) -> Tuned:
        """Return the thresholds that a method finds."""
        estimates = self.estimates
        truth = self.valid.labels
        if method == "ofo":
            with one_step(self.on_progress, "start values"):
                start = self._start(estimates, truth, self.bounds)
            counted = self.label_counts, self.n_training_rows
            begun = Tuned.begin(
                self.request.objective,
                self.request.empty,
                start,
                lower_bounds(*counted, truth.n_labels),
            )
            return learn(self.predictor, self.valid.rows, truth, begun, *counted, self.on_progress)
        with one_step(self.on_progress, method):
            thresholds = self._find(method, estimates, truth, self.bounds)
        return Tuned(
            method,
            self.request.empty,
            self.read,
            thresholds,
            count_at(estimates, truth, thresholds),
        )

    def _start(self, estimates: Estimates, truth: LabelRows, bounds: F32) -> Start:
        """Return the start values of OFO: those of the request, or the best of the grid.

        For a common threshold the grid is not tried: its counts soon outweigh any start values.
        """
        requested = self.request.start
        if requested is not None:
            return self.read._replace(a=requested.a, b=requested.b)
        return (
            choose_start(estimates, truth, bounds, self.read, self.request.empty)
            if self.request.objective == "macro"
            else self.read
        )

    def _find(self, method: Method, estimates: Estimates, truth: LabelRows, bounds: F32) -> F32:
        """Return the thresholds of a method other than OFO, float32[K]."""
        thresholds, single = fta(estimates, truth, bounds, self.read, self.request.empty)
        if method == "sto":
            floor = self.read.score_of(bounds)
            return sto(estimates, truth, floor, np.maximum(single, floor), self.request.empty)
        return single if method == SINGLE_THRESHOLD else thresholds

    def measure(self, tuned: Tuned, rows: Labelled) -> FMeasures:
        """Return how good thresholds are on some rows."""
        decisions = predict_all(
            self.predictor,
            rows.rows,
            self.predictor.node_thresholds(tuned.thresholds),
            self.request.threads,
            lambda done: self.on_progress(f"measure {tuned.method}", done, rows.rows.n_rows),
            tuned.aim.limit,
        )
        return f_measures(PredictedRows(*decisions), rows.truth, self.request.empty)


def _prepare(model: Model, valid: Labelled, request: TuneRequest, on_progress: OnProgress) -> _Task:
    """Ask the model for the estimates of the validation rows, and learn how to read them."""
    manifest = model.manifest
    predictor = make_predictor(model)
    counted = counts_that_bound(model.arrays), manifest.data.rows
    kappa = np.maximum(
        lower_bounds(*counted, manifest.n_labels),
        np.float32(KAPPA if request.kappa == AUTO else request.kappa),
    )
    read = start_for(manifest.link, model.arrays, manifest.data.rows)
    lenient_start = read._replace(power=max(POWER_MIN, _POWER_SHARE * read.power))

    def ask(floor: F32) -> Estimates:
        keeper = EstimateKeeper(floor, request.estimates_max)
        for predictions in predict_parts(
            predictor,
            valid.rows,
            lambda: predictor.node_thresholds(keeper.floor),
            request.threads,
            lambda done: on_progress("estimates", done, valid.rows.n_rows),
        ):
            keeper.add(predictions.ptr, predictions.labels, predictions.scores)
        return keeper.all()

    for _ in range(_ESTIMATE_PASSES_MAX):
        requested_floor = lenient_start.score_of(kappa)
        estimates = ask(requested_floor)
        power = fit_power(
            np.minimum(estimates.scores * np.float32(read.scale), np.float32(1.0)),
            mark_hits(estimates, valid.labels),
            read.power,
        )
        if power >= lenient_start.power or (estimates.floor > requested_floor).any():
            break
        lenient_start = lenient_start._replace(power=power)
    read = read._replace(power=power)
    return _Task(
        predictor,
        valid,
        estimates,
        np.maximum(kappa, read.probability_of(estimates.floor)),
        *counted,
        read,
        request,
        on_progress,
    )


def carried(
    tuned: Tuned, label_counts: I64 | None, n_rows: int, n_labels: int, unchanged: I64
) -> Tuned:
    """Return the thresholds of a version's parent for the version, which may have more labels.

    The unchanged labels keep their thresholds and counters; the others begin like untuned ones.

    label_counts, n_rows  of the version, as `ofo.lower_bounds` takes them
    """
    counters = no_counts(n_labels)
    thresholds = thresholds_of(counters, tuned.start, lower_bounds(label_counts, n_rows, n_labels))
    thresholds[unchanged] = tuned.thresholds[unchanged]
    for new_counter, old_counter in zip(counters, tuned.counters, strict=True):
        new_counter[unchanged] = old_counter[unchanged]
    return tuned._replace(thresholds=thresholds, counters=counters)


def learn(
    predictor: Searcher,
    rows: SparseRows,
    truth: LabelRows,
    begun: Tuned,
    label_counts: I64 | None,
    n_rows: int,
    on_progress: OnProgress,
) -> Tuned:
    """Continue a state over rows, each predicted under the thresholds of that moment.

    Source: Jasinska et al. 2016, algorithm 2. The predictions are the same, and in the same order,
    as those of feedback, so the results are the same bits. Cost: a prediction a row, O(predicted +
    true) labels moved.

    label_counts, n_rows  as `ofo.lower_bounds` takes them
    """
    moving = ThresholdCounters(
        begun, predictor, np.empty(0, np.int64) if label_counts is None else label_counts, n_rows
    )
    events = instances_of(
        SparseRows(
            writeable(rows.indptr), writeable(rows.indices), writeable(rows.values), rows.n_features
        ),
        truth,
    )
    for first in range(0, rows.n_rows, 100):
        on_progress("ofo", first, rows.n_rows)
        moving.count(events, np.arange(first, min(first + 100, rows.n_rows)))
        moving.keep()
    on_progress("ofo", rows.n_rows, rows.n_rows)
    return moving.snapshot()
