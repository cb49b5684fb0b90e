"""The faces of packages: `__init__.pyi` lists what others may use; a
name is imported at its first use.
"""

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

_LINE = re.compile(r"^from (\.[\w.]*) import (\w+) as \2$", re.MULTILINE)
"""A name in a stub, and the module that it is in.
Python's own parser would take a millisecond a package.
"""


class Face(NamedTuple):
    """What a package needs for its face, under the names that Python asks a module
    for (PEP 562).
    """

    getattr: Callable[[str], object]
    dir: Callable[[], list[str]]
    all: list[str]


def modules_of_names(stub: str) -> dict[str, str]:
    """Return the names that a stub lists, and the module that each is in, such as `.build`."""
    return {name: module for module, name in _LINE.findall(stub)}


def face_of(package: str, file: str) -> Face:
    """Return the face of a package.

    package   its `__name__`
    file      its `__file__`, beside which `__init__.pyi` is

    Type checkers and editors read the stub, so each name is listed once. lazy_loader does the same,
    but imports everything at once where the variable EAGER_IMPORT is set: that fails for optional
    dependencies that are missing, before any code of ours could remove the variable.
    """
    modules = modules_of_names(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))

    def get_name(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = modules[name]
        if module == ".":  # a module of the package itself
            return import_module(f".{name}", package)
        value: object = getattr(import_module(module, package), name)
        setattr(sys.modules[package], name, value)  # so that it is found at once the next time
        return value

    return Face(get_name, lambda: sorted(modules), sorted(modules))
