"""The trainers by name.

A new trainer is a module with a TrainerSpec and a line in `TRAINERS`, or an entry point of an
installed package. Entry points are in the group `xylem.trainers`, each with the name of its trainer
(docs/add_a_trainer.md). A package is loaded only when its trainer is used; errors in it are
reported then, with the name of its distribution. An installed package can neither replace a trainer
of Xylem nor make one fail.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from xylem.base import (
    NO_ROWS,
    BadParameter,
    Crew,
    LabelRows,
    OnProgress,
    Parameters,
    SparseRows,
    did_you_mean,
    log,
    no_progress,
)
from xylem.trainers.label_tree import LABEL_TREE, OVR
from xylem.trainers.ldsm.trainer import LDSM
from xylem.trainers.lomtree.trainer import LOMTREE
from xylem.trainers.plt.trainer import PLT
from xylem.trainers.ranking.forest import FASTXML, PFASTREXML
from xylem.trainers.regrowing import Regrown
from xylem.trainers.softmax.trainers import HUFFMAN_TREE, LEARNED_TREE
from xylem.trainers.source import (
    MemorySource,
    RowSource,
    Tools,
    TrainingSet,
    WholeRows,
    all_rows,
    check_training_set,
)
from xylem.trainers.spec import Regrows, Trained, TrainerSpec
from xylem_store import Manifest, Model

# The trainers of Xylem itself, by the name that is used on the command line.
TRAINERS: dict[str, TrainerSpec[Any]] = {
    spec.name: spec
    for spec in (
        LABEL_TREE,
        OVR,
        PLT,
        LOMTREE,
        FASTXML,
        PFASTREXML,
        LDSM,
        HUFFMAN_TREE,
        LEARNED_TREE,
    )
}

# For each way to read rows, what a trainer that reads in this way can do.
#
# They are ordered by their demands on the source, the least demanding last.
_READS = {"rows": "trains in memory", "passes": "can stream", "once": "learns from standard input"}

GROUP = "xylem.trainers"


@cache
def installed() -> dict[str, tuple[EntryPoint, ...]]:
    """Return the entry points by name; several for a name that several distributions use.

    They are looked up once in a process. An entry point with the name of one of `TRAINERS` is
    logged, and never used.
    """
    points_by_name: dict[str, tuple[EntryPoint, ...]] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, _source(point))):
        points_by_name[point.name] = (*points_by_name.get(point.name, ()), point)
    for name in sorted(points_by_name.keys() & TRAINERS.keys()):
        log(
            logging.WARNING,
            "trainer_refused",
            detail=f"trainer {name}: expected another name, found that of a trainer of Xylem in "
            f"{_sources(points_by_name[name])}",
        )
    return points_by_name


@cache
def _load(name: str) -> TrainerSpec[Any]:
    """Return the trainer of an entry point in `installed`.

    Raises BadParameter, with the name of the distribution, if several distributions have this entry
    point, if its object cannot be imported, or if it is no TrainerSpec of that name.
    """
    points = installed()[name]
    if len(points) > 1:
        raise BadParameter(
            f"trainer {name}: expected one distribution to have it, found {_sources(points)}"
        )
    (point,) = points
    prefix = f"trainer {name} of {_source(point)}"
    try:
        spec = point.load()
    except Exception as error:  # whatever the code of another package raises
        raise BadParameter(
            f"{prefix}: expected to import {point.value}, found {type(error).__name__}: {error}"
        ) from error
    if not isinstance(spec, TrainerSpec):
        raise BadParameter(
            f"{prefix}: expected a TrainerSpec in {point.value}, found {type(spec).__name__}"
        )
    if spec.name != name:
        raise BadParameter(f"{prefix}: expected a TrainerSpec of that name, found {spec.name!r}")
    if not (isinstance(spec.parameters, type) and issubclass(spec.parameters, Parameters)):
        raise BadParameter(f"{prefix}: expected a class of Parameters, found {spec.parameters!r}")
    return spec


def _source(point: EntryPoint) -> str:
    """Return the name and version of the distribution that has an entry point."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown distribution"


def _sources(points: tuple[EntryPoint, ...]) -> str:
    return " and ".join(map(_source, points))


def trainer(name: str) -> TrainerSpec[Any]:
    """Return the trainer of that name, of Xylem or of an installed package.

    Raises BadParameter if there is none, or if that of the package cannot be used.
    """
    points = installed()
    if name in TRAINERS:
        return TRAINERS[name]
    if name in points:
        return _load(name)
    names = dict.fromkeys([*TRAINERS, *points])
    raise BadParameter(
        f"trainer: expected one of {', '.join(names)}, found {name!r}{did_you_mean(name, names)}"
    )


def parse_parameters(name: str, items: Sequence[str]) -> Parameters:
    """Return the parameters of trainer `name` from `key=value` strings.

    Raises BadParameter.
    """
    parsed: Parameters = trainer(name).parameters.parse(items)
    return parsed


def fit(name: str, parameters: Parameters, source: RowSource, tools: Tools) -> Trained:
    """Train with trainer `name` on the rows of a source.

    parameters  of the trainer's class
    tools       the same seed, >= 0, and data give the same bits whatever the number of threads

    Raises BadParameter, also for a trainer that cannot read the source, before anything is read;
    and BadData. When this thread is interrupted, the other threads end soon, and the exception
    propagates.
    """
    spec = _check_trainer(name, parameters, tools)
    if not _can_read(spec, source):
        readers = _trainers_that(lambda spec: _can_read(spec, source))
        raise BadParameter(
            f"trainer: expected one that {_READS[source.reads]}, {readers}; found {name}"
        )
    if tools.on_rows is not None and not spec.shows:
        showing = _trainers_that(lambda spec: spec.shows)
        raise BadParameter(f"thresholds: expected one of {showing}, found {name}")
    if isinstance(source, MemorySource):
        check_training_set(source.data)
    trained = spec.fit(_as_learnt(spec, parameters, source, tools.seed), parameters, tools)
    plan = spec.plan(parameters)
    if plan is None or not 0 < tools.passes.until < plan.passes:
        return trained
    return replace(
        trained,
        warnings=[
            *trained.warnings,
            f"stopped after pass {tools.passes.until} of {plan.passes}: continue with train --from",
        ],
    )


def check_growth(manifest: Manifest, operation: str) -> Callable[[SparseRows], Regrows]:
    """Return a function of rows that returns the `Regrows` of a version.

    operation  "extend" or "from", the name of the option, for messages

    Raises BadParameter for a version whose trees cannot be extended or trained further.
    """
    name = manifest.trainer.name
    spec = trainer(name) if name in TRAINERS or name in installed() else None
    if spec is None or spec.growth is None:
        advice = (
            ", whose labels come with the rows of its stream: train it again on all rows"
            if name == LOMTREE.name
            else ""
        )
        growing = _trainers_that(lambda spec: spec.growth is not None)
        raise BadParameter(
            f"{operation}: expected a version of {growing}, found one of {name}{advice}"
        )
    grows = spec.growth
    try:
        parameters = spec.parameters.from_json(dict(manifest.trainer.parameters))
        grows(parameters, NO_ROWS)
    except BadParameter as error:
        raise BadParameter(f"{operation}: parameters of {manifest.full_name}: {error}") from None
    return lambda rows: grows(parameters, rows)


def grow_on(
    model: Model, data: TrainingSet, operation: str, crew: Crew, progress: OnProgress = no_progress
) -> Regrown:
    """Return the trees of a version with new labels, or trained further from their weights.

    data       its labels are those of the version, and after them new ones
    operation  "extend": add the new labels; "from": train further

    Raises BadParameter for a version whose trees cannot be extended or trained further.
    """
    growth = check_growth(model.manifest, operation)(data.rows)
    grow = growth.extend if operation == "extend" else growth.refit
    return grow(model, data, Tools(model.manifest.seed, crew, progress))


def train(
    name: str,
    parameters: Parameters,
    rows: SparseRows,
    labels: LabelRows,
    seed: int = 0,
    threads: int = 1,
    progress: OnProgress = no_progress,
) -> Trained:
    """Train with trainer `name` on rows in memory, usually rows of length 1; see `fit`."""
    return fit(
        name,
        parameters,
        MemorySource(TrainingSet(rows, labels)),
        Tools(seed, Crew(threads), progress),
    )


def estimate(name: str, parameters: Parameters, data: TrainingSet, tools: Tools) -> dict[str, Any]:
    """Return the estimated size of the model of a training, before it is trained.

    The keys are those of SizeEstimate: nonzeros_bound, bytes_bound, ratio_to_ovr, stored_bytes,
    alpha_per_depth.
    """
    spec = _check_trainer(name, parameters, tools)
    check_training_set(data)
    return spec.estimate(
        all_rows(_as_learnt(spec, parameters, MemorySource(data), tools.seed)), parameters, tools
    ).as_dict()


def estimate_blocks(
    name: str, parameters: Parameters, source: RowSource, tools: Tools
) -> dict[str, Any]:
    """Return the same as `estimate`, for rows that are read as a stream.

    Raises BadParameter for a trainer that does not store its rows in blocks.
    """
    estimator = _check_trainer(name, parameters, tools).estimate_blocks
    if estimator is None:
        storing = _trainers_that(lambda spec: spec.estimate_blocks is not None)
        raise BadParameter(f"stream: expected one of {storing}, found {name}")
    return estimator(source, parameters, tools).as_dict()


def check_spreads(name: str, parameters: Parameters) -> None:
    """Raise BadParameter for a training that cannot be divided among machines."""
    reason = trainer(name).alone(parameters)
    if reason is not None:
        spreading = _trainers_that(lambda spec: spec.alone(spec.parameters()) is None)
        raise BadParameter(f"ray: expected one of {spreading}, found {name}, {reason}")


def _trainers_that(can: Callable[[TrainerSpec[Any]], bool]) -> str:
    return ", ".join(spec.name for spec in TRAINERS.values() if can(spec))


def _can_read(spec: TrainerSpec[Any], source: RowSource) -> bool:
    order = list(_READS)
    return order.index(source.reads) <= order.index(spec.reads)


def _as_learnt(
    spec: TrainerSpec[Any], parameters: Parameters, source: RowSource, seed: int
) -> RowSource:
    """Return a source whose rows have weights only if the trainer uses them."""
    # whether rows that are read once have weights shows as they are read
    return (
        source
        if spec.weighs(parameters) or (source.reads != "once" and source.census.weights is None)
        else WholeRows(source, seed)
    )


def _check_trainer(name: str, parameters: Parameters, tools: Tools) -> TrainerSpec[Any]:
    """Return trainer `name` after checking the parameters, the seed and the number of threads.

    Raises BadParameter.
    """
    spec = trainer(name)
    if not isinstance(parameters, spec.parameters):
        raise BadParameter(f"expected parameters of {name}, found {type(parameters).__name__}")
    if tools.seed < 0 or tools.crew.threads < 1:
        raise BadParameter(
            f"expected a seed >= 0 and threads >= 1, found {tools.seed} and {tools.crew.threads}"
        )
    return spec
