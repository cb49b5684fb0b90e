"""The trainers by name. A new trainer is a file with a TrainerSpec and its line here, or an entry point.

docs/add_a_trainer.md shows the way by an entry point of a package of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from service.errors import BadParameter
from service.nearest import did_you_mean
from service.parameters import Parameters
from service.rows import LabelRows, SparseRows
from service.trainers import plugins
from service.trainers.bounds import plan_within
from service.trainers.fastxml import FASTXML
from service.trainers.huffman_tree import HUFFMAN_TREE
from service.trainers.label_tree import LABEL_TREE
from service.trainers.ldsm import LDSM
from service.trainers.learned_tree import LEARNED_TREE
from service.trainers.lomtree import LOMTREE
from service.trainers.ovr import OVR
from service.trainers.pfastrexml import PFASTREXML
from service.trainers.plt import PLT
from service.trainers.source import OnPlan, OnRows, RowSource, no_plan
from service.trainers.spec import Trained, TrainerSpec, TrainingSet, check_training_set
from service.trainers.work import Crew, Progress, no_progress

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


def trainer(name: str) -> TrainerSpec[Any]:
    """Return the trainer of that name, our own or an installed package's.

    Raises BadParameter when there is none, or the package's cannot be used.
    """
    if name in TRAINERS:
        plugins.warn_of_clash(name)
        return TRAINERS[name]
    others = plugins.installed()
    if name in others:
        return plugins.load(name)
    known = dict.fromkeys([*TRAINERS, *others])
    hint = did_you_mean(name, known)
    raise BadParameter(f"trainer: expected one of {', '.join(known)}, found {name!r}{hint}")


def parse_parameters(name: str, items: Sequence[str]) -> Parameters:
    """Return the parameters of trainer `name` that `key=value` items say; raise BadParameter."""
    parsed: Parameters = trainer(name).parameters.parse(items)
    return parsed


def train(
    name: str,
    parameters: Parameters,
    rows: SparseRows,
    labels: LabelRows,
    seed: int = 0,
    threads: int = 1,
    progress: Progress = no_progress,
    on_plan: OnPlan = no_plan,
) -> Trained:
    """Train with trainer `name`.

    parameters  of the trainer's class
    rows        as features made them: usually rows of length 1
    seed        >= 0; the same seed and data give the same bits whatever the number of threads
    threads     >= 1
    progress    called in this thread with (stage, done, total)
    on_plan     called with what the training takes at most, before it begins

    Raises BadParameter, BadData. When this thread is interrupted the threads end soon, and the exception
    goes on.
    """
    data, crew = _prepare(name, parameters, rows, labels, seed, threads)
    spec = trainer(name)
    on_plan(plan_within(spec.bound, parameters, data, threads))
    return spec.train(data, parameters, seed, crew, progress)


def train_stream(
    name: str,
    parameters: Parameters,
    source: RowSource,
    seed: int = 0,
    threads: int = 1,
    progress: Progress = no_progress,
    on_plan: OnPlan = no_plan,
    on_rows: OnRows | None = None,
) -> Trained:
    """Train with trainer `name` on rows that need not fit in memory; see `train`.

    on_plan  called with what the training will take, before the first row is trained on
    on_rows  shown rows of the first pass with the model so far, before it learns from them

    Raises BadParameter, before the source is read, for a trainer or parameters that cannot stream.
    """
    spec, crew = trainer(name), _crew(name, parameters, seed, threads)
    if on_rows is not None:
        if spec.train_shown is None:
            shows = [spec.name for spec in TRAINERS.values() if spec.train_shown]
            raise BadParameter(f"thresholds: expected a trainer of {', '.join(shows)}, found {name}")
        return spec.train_shown(source, parameters, seed, crew, progress, on_plan, on_rows)
    stream = spec.train_stream
    if stream is None:
        able = [spec.name for spec in TRAINERS.values() if spec.train_stream]
        raise BadParameter(f"trainer: expected one that can stream, {', '.join(able)}; found {name}")
    return stream(source, parameters, seed, crew, progress, on_plan)


def estimate(
    name: str,
    parameters: Parameters,
    rows: SparseRows,
    labels: LabelRows,
    seed: int = 0,
    threads: int = 1,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Return nonzeros_bound, bytes_bound, ratio_to_ovr and alpha_per_depth of what `train` would train."""
    data, crew = _prepare(name, parameters, rows, labels, seed, threads)
    return trainer(name).estimate(data, parameters, seed, crew, progress).as_dict()


def _prepare(
    name: str, parameters: Parameters, rows: SparseRows, labels: LabelRows, seed: int, threads: int
) -> tuple[TrainingSet, Crew]:
    crew = _crew(name, parameters, seed, threads)
    data = TrainingSet(rows, labels)
    check_training_set(data)
    return data, crew


def _crew(name: str, parameters: Parameters, seed: int, threads: int) -> Crew:
    if not isinstance(parameters, trainer(name).parameters):
        raise BadParameter(f"expected parameters of {name}, found {type(parameters).__name__}")
    if seed < 0 or threads < 1:
        raise BadParameter(f"expected a seed >= 0 and threads >= 1, found {seed} and {threads}")
    return Crew(threads)
