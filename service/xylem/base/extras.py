"""The optional parts of this installation: where each is, and the library that it needs.

This is the only way to `xylem.extras`. Whoever needs an optional part calls `load_extra`, and
nobody imports it: so the folder can be left out of an installation, and a missing library is
reported in one way.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from xylem.base.errors import BadParameter


class Extra(NamedTuple):
    """An optional part.

    module   the module that its users get
    purpose  what it is for, as the subject of a message
    library  the package that it needs; None if it needs no other
    option   the optional dependency of xylem-serve that installs the library
    project  the name of the library's project, if it is not that of the package
    """

    module: str
    purpose: str
    library: str | None = None
    option: str | None = None
    project: str | None = None


EXTRAS = {
    "grpc": Extra(
        "xylem.extras.grpc.server",
        "xylem serve --grpc-port",
        "grpc_reflection.v1alpha.reflection",  # it imports grpcio and protobuf
        "grpc",
        "grpcio",
    ),
    "importers": Extra("xylem.extras.importers.registry", "importing models of other libraries"),
    "ray": Extra("xylem.extras.ray.crew", "running steps on a cluster", "ray", "ray"),
    "rdf": Extra("xylem.extras.rdf.skos", "reading RDF", "rdflib", "rdf"),
    "report": Extra("xylem.extras.report.charts", "drawing", "matplotlib", "report"),
    "search": Extra(
        "xylem.extras.search.parameter_search", "searching parameters", "optuna", "tune"
    ),
}


def load_extra(name: str) -> Any:
    """Return the module of an optional part, one of EXTRAS.

    Raises BadParameter if this installation lacks the part, or the library that it needs.
    """
    extra = EXTRAS[name]
    package = extra.module.rpartition(".")[0]
    if not _is_installed(package):
        raise BadParameter(
            f"{extra.purpose} needs {package}, which this installation of xylem-serve does not have"
        )
    if extra.library is not None:
        try:
            import_module(extra.library)
        except ImportError as error:
            raise BadParameter(
                f"{extra.purpose} needs {extra.project or extra.library}: pip install "
                f"'xylem-serve[{extra.option}]' ({error})"
            ) from error
    return import_module(extra.module)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False
