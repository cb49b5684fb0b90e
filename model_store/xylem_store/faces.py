"""The faces of packages: `__init__.pyi` lists public names; each is imported at its first use."""

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

# Matches a name in a stub, and its module.
#
# Python's own parser would take a millisecond for each package.
_LINE = re.compile(r"^from (\.[\w.]*) import (\w+) as \2$", re.MULTILINE)


class Face(NamedTuple):
    """What a package needs for its face, by the names that Python asks a module for (PEP 562)."""

    getattr: Callable[[str], object]
    dir: Callable[[], list[str]]
    all: list[str]


def modules_of_names(stub: str) -> dict[str, str]:
    """Return the names that a stub lists, each with its module, such as `.build`."""
    return {name: module for module, name in _LINE.findall(stub)}


def face_of(package: str, file: str) -> Face:
    """Return the face of a package.

    package   its `__name__`
    file      its `__file__`; `__init__.pyi` is in the same folder

    Type checkers and editors read the stub, so each name is listed once. lazy_loader does the same,
    but imports everything at once if the variable EAGER_IMPORT is set. That fails for missing
    optional dependencies, before any code of this project could remove the variable.
    """
    modules = modules_of_names(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))

    def get_name(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = modules[name]
        if module == ".":  # the name is a module of the package
            return import_module(f".{name}", package)
        value: object = getattr(import_module(module, package), name)
        setattr(sys.modules[package], name, value)  # so that Python finds it directly the next time
        return value

    return Face(get_name, lambda: sorted(modules), sorted(modules))
