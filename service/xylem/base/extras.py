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

    module     the module that its users get
    purpose    what it is for, as the subject of a message
    libraries  the packages that it needs
    option     the optional dependency of xylem-serve that installs them; None if it needs none
    """

    module: str
    purpose: str
    libraries: tuple[str, ...] = ()
    option: str | None = None


# The projects that install packages, where the two have different names.
PROJECTS = {
    "grpc": "grpcio",
    "grpc_health": "grpcio-health-checking",
    "grpc_reflection": "grpcio-reflection",
}

EXTRAS = {
    "encoder": Extra(
        "xylem.extras.encoder.encoder",
        "running sentence encoders",
        ("onnxruntime", "tokenizers"),
        "encoder",
    ),
    "grpc": Extra(
        "xylem.extras.grpc.server",
        "xylem serve --grpc-port",
        ("grpc", "grpc_health", "grpc_reflection"),
        "grpc",
    ),
    "importers": Extra("xylem.extras.importers.registry", "importing models of other libraries"),
    "ray": Extra("xylem.extras.ray.crew", "running steps on a cluster", ("ray",), "ray"),
    "rdf": Extra("xylem.extras.rdf.skos", "reading RDF", ("rdflib",), "rdf"),
    "report": Extra("xylem.extras.report.charts", "drawing", ("matplotlib",), "report"),
    "search": Extra(
        "xylem.extras.search.parameter_search", "searching parameters", ("optuna",), "tune"
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
    for library in extra.libraries:
        try:
            import_module(library)
        except ImportError as error:
            raise BadParameter(
                f"{extra.purpose} needs {PROJECTS.get(library, library)}: pip install "
                f"'xylem-serve[{extra.option}]' ({error})"
            ) from error
    return import_module(extra.module)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False
