"""Trainers of installed packages: entry points of the group `xylem.trainers`, each by its trainer's name.

A package is only loaded when its trainer is asked for, and what is wrong with it is told then, with the name
of its distribution. Nothing that is installed can take the place of a trainer of our own, or stop one.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from service.base.errors import BadParameter
from service.base.logs import log
from service.base.parameters import Parameters
from service.trainers.spec import TrainerSpec

GROUP = "xylem.trainers"


@cache
def installed() -> dict[str, tuple[EntryPoint, ...]]:
    """Return the entry points by name: more than one where distributions clash. Found once a process."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, _source(point))):
        found[point.name] = (*found.get(point.name, ()), point)
    return found


@cache
def warn_of_clash(name: str) -> None:
    """Log, once a process, that an entry point has the name of a trainer of our own: it is passed over."""
    if name in installed():
        source = _sources(installed()[name])
        detail = f"trainer {name}: expected another name, found that of a trainer of Xylem in {source}"
        log(logging.WARNING, "trainer_refused", detail=detail)


@cache
def load(name: str) -> TrainerSpec[Any]:
    """Return the trainer of an entry point in `installed`.

    Raises BadParameter, naming the distribution: two have the name, the object cannot be imported, or is no
    TrainerSpec of that name.
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
        found = f"{type(error).__name__}: {error}"
        raise BadParameter(f"{where}: expected to import {point.value}, found {found}") from error
    if not isinstance(spec, TrainerSpec):
        raise BadParameter(f"{where}: expected a TrainerSpec in {point.value}, found {type(spec).__name__}")
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
