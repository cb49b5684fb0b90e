"""The digest of the sources of kernels: an edit in any file that one uses gives another digest."""

import functools
import hashlib
import re
from importlib.util import find_spec
from pathlib import Path

from xylem_store.faces import modules_of_names

# The packages of this project that contain kernels and the helpers that they call.
PACKAGES = ("xylem", "xylem_store")

# Matches imports. Python's own parser takes a quarter of a second for all files, at each start.
_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]*)|import[ \t]+([^\n#]*))",
    re.MULTILINE,
)


@functools.cache
def package_folders() -> dict[str, Path]:
    """Return the folder of each installed package of this project, by its name."""
    specs = {name: find_spec(name) for name in PACKAGES}
    return {
        name: Path(spec.origin).resolve().parent
        for name, spec in specs.items()
        if spec and spec.origin
    }


@functools.cache
def _file_of(module: str) -> Path | None:
    """Return the file of a module of this project; None for a package, and for any other name."""
    package, _, path = module.partition(".")
    if not path or package not in package_folders():
        return None
    file = package_folders()[package] / (path.replace(".", "/") + ".py")
    return file if file.is_file() else None


@functools.cache
def _names_of_face(package: str) -> dict[str, str]:
    """Return the public names of a package of this project, each with its module."""
    first, _, path = package.partition(".")
    if first not in package_folders():
        return {}
    stub = package_folders()[first] / path.replace(".", "/") / "__init__.pyi"
    names = modules_of_names(stub.read_text(encoding="utf-8")) if stub.is_file() else {}
    return {name: f"{package}{module}" for name, module in names.items()}


@functools.cache
def _source(path: Path) -> tuple[bytes, set[Path]]:
    """Return the sha256 of the module at `path`, and the files of this project that it imports.

    A name that is imported from a package is in the module that the package's face states. Text
    that only looks like an import counts as one, which does no harm.
    """
    content = path.read_bytes()
    names: set[str] = set()
    for module, imported, modules in _IMPORT.findall(content):
        names.update(name.decode() for name in re.findall(rb"[\w.]+", modules) or [module])
        face = _names_of_face(module.decode())
        for name in re.findall(r"(?<!\bas )\b\w+", imported.decode()):
            names.update({f"{module.decode()}.{name}", face.get(name, "")})
    return hashlib.sha256(content).digest(), {file for name in names if (file := _file_of(name))}


@functools.cache
def source_digest(path: Path) -> str:
    """Return the sha256 of the module at `path` and of all modules of this project it reaches."""
    visited = set[Path]()
    pending = [path]
    while pending:
        file = pending.pop()
        if file not in visited:
            visited.add(file)
            pending.extend(_source(file)[1])
    # Sorted by digest, not by path: paths sort differently in an installation and in a checkout.
    return hashlib.sha256(b"".join(sorted(_source(file)[0] for file in visited))).hexdigest()
