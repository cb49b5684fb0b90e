"""The trainers by name: a new one is a file with a TrainerSpec
and its line here, or an entry point.

Entry points stand in the group `xylem.trainers`, each by its trainer's name
(docs/add_a_trainer.md). A package is only loaded when its trainer is asked for; what is wrong with
it is told then, with the name of its distribution. Nothing that is installed can take the place of
a trainer of our own, or stop one.
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
    Parameters,
    SparseRows,
    did_you_mean,
    log,
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
    Progress,
    RowSource,
    Tools,
    TrainingSet,
    check_training_set,
    no_progress,
)
from xylem.trainers.spec import Regrows, Trained, TrainerSpec
from xylem_store import Manifest, Model

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
"""Every trainer of our own by the name that the command line takes."""

_READS = {"rows": "trains in memory", "passes": "can stream", "once": "learns from standard input"}
"""What a trainer can do that reads rows so, the least demanding last."""

GROUP = "xylem.trainers"


@cache
def installed() -> dict[str, tuple[EntryPoint, ...]]:
    """Return the entry points by name: more than one where
    distributions clash. Found once a process.

    Logs those that have the name of a trainer of our own: they are passed over.
    """
    points_by_name: dict[str, tuple[EntryPoint, ...]] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, _source(point))):
        points_by_name[point.name] = (*points_by_name.get(point.name, ()), point)
    for name in sorted(points_by_name.keys() & TRAINERS.keys()):
        source = _sources(points_by_name[name])
        detail = (
            f"trainer {name}: expected another name, found that of a trainer of Xylem in {source}"
        )
        log(logging.WARNING, "trainer_refused", detail=detail)
    return points_by_name


@cache
def _load(name: str) -> TrainerSpec[Any]:
    """Return the trainer of an entry point in `installed`.

    Raises BadParameter, naming the distribution: two have the name, the object cannot be imported,
    or is no TrainerSpec of that name.
    """
    points = installed()[name]
    if len(points) > 1:
        message = f"trainer {name}: expected one distribution to have it, found {_sources(points)}"
        raise BadParameter(message)
    (point,) = points
    where = f"trainer {name} of {_source(point)}"
    try:
        spec = point.load()
    except Exception as error:  # whatever the code of another package raises
        cause = f"{type(error).__name__}: {error}"
        raise BadParameter(f"{where}: expected to import {point.value}, found {cause}") from error
    if not isinstance(spec, TrainerSpec):
        raise BadParameter(
            f"{where}: expected a TrainerSpec in {point.value}, found {type(spec).__name__}"
        )
    if spec.name != name:
        raise BadParameter(f"{where}: expected a TrainerSpec of that name, found {spec.name!r}")
    if not (isinstance(spec.parameters, type) and issubclass(spec.parameters, Parameters)):
        raise BadParameter(f"{where}: expected a class of Parameters, found {spec.parameters!r}")
    return spec


def _source(point: EntryPoint) -> str:
    """Return the distribution that an entry point is of, with its version."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown distribution"


def _sources(points: tuple[EntryPoint, ...]) -> str:
    return " and ".join(map(_source, points))


def trainer(name: str) -> TrainerSpec[Any]:
    """Return the trainer of that name, our own or an installed package's.

    Raises BadParameter when there is none, or the package's cannot be used.
    """
    points = installed()
    if name in TRAINERS:
        return TRAINERS[name]
    if name in points:
        return _load(name)
    names = dict.fromkeys([*TRAINERS, *points])
    hint = did_you_mean(name, names)
    raise BadParameter(f"trainer: expected one of {', '.join(names)}, found {name!r}{hint}")


def parse_parameters(name: str, items: Sequence[str]) -> Parameters:
    """Return the parameters of trainer `name` that `key=value` items say; raise BadParameter."""
    parsed: Parameters = trainer(name).parameters.parse(items)
    return parsed


def fit(name: str, parameters: Parameters, source: RowSource, tools: Tools) -> Trained:
    """Train with trainer `name` on the rows of a source.

    parameters  of the trainer's class
    tools       the same seed, >= 0, and data give the same bits whatever the number of threads

    Raises BadParameter, BadData; a trainer that cannot read the source is refused before it is
    read. When this thread is interrupted the threads end soon, and the exception goes on.
    """
    spec = _check_trainer(name, parameters, tools)
    passes = tools.passes
    if not _can_read(spec, source):
        able = ", ".join(spec.name for spec in TRAINERS.values() if _can_read(spec, source))
        raise BadParameter(
            f"trainer: expected one that {_READS[source.reads]}, {able}; found {name}"
        )
    if tools.on_rows is not None and not spec.shows:
        shows = ", ".join(spec.name for spec in TRAINERS.values() if spec.shows)
        raise BadParameter(f"thresholds: expected a trainer of {shows}, found {name}")
    if isinstance(source, MemorySource):
        check_training_set(source.data)
    trained = spec.fit(source, parameters, tools)
    plan = spec.plan(parameters)
    if plan is None or not 0 < passes.until < plan.passes:
        return trained
    stopped = f"stopped after pass {passes.until} of {plan.passes}: continue with train --from"
    return replace(trained, warnings=[*trained.warnings, stopped])


def check_growth(manifest: Manifest, operation: str) -> Callable[[SparseRows], Regrows]:
    """Return how the trees of a version grow on, rows being given; `operation` is wanted of it.

    Raises BadParameter for a version whose trees do not.
    """
    name = manifest.trainer.name
    stored_parameters = dict(manifest.trainer.parameters)
    spec = trainer(name) if name in TRAINERS or name in installed() else None
    if spec is None or spec.growth is None:
        able = ", ".join(spec.name for spec in TRAINERS.values() if spec.growth is not None)
        of_stream = ", whose labels come with the rows of its stream: train it again on all rows"
        instead = of_stream if name == LOMTREE.name else ""
        raise BadParameter(
            f"{operation}: expected a version of {able}, found one of {name}{instead}"
        )
    grows = spec.growth
    try:
        parameters = spec.parameters.from_json(stored_parameters)
        grows(parameters, NO_ROWS)
    except BadParameter as error:
        raise BadParameter(f"{operation}: parameters of {manifest.shown}: {error}") from None
    return lambda rows: grows(parameters, rows)


def grow_on(
    model: Model, data: TrainingSet, operation: str, crew: Crew, progress: Progress = no_progress
) -> Regrown:
    """Return the trees of a version with labels added, or going on from their weights.

    data  its labels are the version's, and after them new ones
    operation  "extend" or "from"

    Raises BadParameter for a version whose trees do not grow on.
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
    progress: Progress = no_progress,
) -> Trained:
    """Train with trainer `name` on rows in memory, usually rows of length 1; see `fit`."""
    tools = Tools(seed, Crew(threads), progress)
    return fit(name, parameters, MemorySource(TrainingSet(rows, labels)), tools)


def estimate(name: str, parameters: Parameters, data: TrainingSet, tools: Tools) -> dict[str, Any]:
    """Return nonzeros_bound, bytes_bound, ratio_to_ovr, stored_bytes
    and alpha_per_depth of a training.
    """
    spec = _check_trainer(name, parameters, tools)
    check_training_set(data)
    return spec.estimate(data, parameters, tools).as_dict()


def estimate_blocks(
    name: str, parameters: Parameters, source: RowSource, tools: Tools
) -> dict[str, Any]:
    """Return what `estimate` does of a stream.

    Raises BadParameter for a trainer that holds no blocks.
    """
    estimator = _check_trainer(name, parameters, tools).estimate_blocks
    if estimator is None:
        able = ", ".join(spec.name for spec in TRAINERS.values() if spec.estimate_blocks)
        raise BadParameter(f"stream: expected one of {able}, found {name}")
    return estimator(source, parameters, tools).as_dict()


def check_spreads(name: str, parameters: Parameters) -> None:
    """Raise BadParameter for a training that is the work of one process, and not of steps."""
    why = trainer(name).alone(parameters)
    if why is not None:
        able = ", ".join(
            spec.name for spec in TRAINERS.values() if spec.alone(spec.parameters()) is None
        )
        raise BadParameter(f"ray: expected one of {able}, found {name}, {why}")


def _can_read(spec: TrainerSpec[Any], source: RowSource) -> bool:
    """Return whether a source offers what a trainer needs."""
    ways = list(_READS)
    return ways.index(source.reads) <= ways.index(spec.reads)


def _check_trainer(name: str, parameters: Parameters, tools: Tools) -> TrainerSpec[Any]:
    """Return trainer `name`. Raises BadParameter, also for what it is not to be used with."""
    spec = trainer(name)
    threads = tools.crew.threads
    if not isinstance(parameters, spec.parameters):
        raise BadParameter(f"expected parameters of {name}, found {type(parameters).__name__}")
    if tools.seed < 0 or threads < 1:
        raise BadParameter(
            f"expected a seed >= 0 and threads >= 1, found {tools.seed} and {threads}"
        )
    return spec
