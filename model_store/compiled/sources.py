"""The digest of everything that decides a kernel's code: its file, and every file of ours that it imports.

numba's own cache looks at the file of the function only: an edit in a helper of another file is not seen.
"""

import functools
import hashlib
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("model_store", "service")

_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]*)|import[ \t]+([^\n#]*))", re.MULTILINE
)
"""Python's own parser takes a quarter of a second for all the files, at each start."""


@functools.cache
def _file_of(module: str) -> Path | None:
    """Return the file of a module of ours; None for any other name."""
    if not module.startswith(PACKAGES):
        return None
    file = ROOT / (module.replace(".", "/") + ".py")
    return file if file.is_file() else None


@functools.cache
def _source(path: Path) -> tuple[bytes, set[Path]]:
    """Return the sha256 of the module at `path`, and the files of ours that it imports.

    A word that only looks like an import counts as one: it does no harm.
    """
    content = path.read_bytes()
    names: set[str] = set()
    for module, imported, modules in _IMPORT.findall(content):
        names.update(name.decode() for name in re.findall(rb"[\w.]+", modules) or [module])
        names.update(f"{module.decode()}.{name.decode()}" for name in re.findall(rb"\w+", imported))
    return hashlib.sha256(content).digest(), {file for name in names if (file := _file_of(name))}


@functools.cache
def source_digest(path: Path) -> str:
    """Return the sha256 of the module at `path` and of all modules of ours that it reaches."""
    seen, todo = set[Path](), [path]
    while todo:
        file = todo.pop()
        if file not in seen:
            seen.add(file)
            todo.extend(_source(file)[1])
    digest = hashlib.sha256()
    for file in sorted(seen, key=str):
        digest.update(_source(file)[0])
    return digest.hexdigest()
