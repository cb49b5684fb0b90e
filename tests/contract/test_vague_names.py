"""Names are nouns of the field or verbs: participles, prepositions and pronouns alone are none."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.helpers.checkout import PACKAGES, ROOT

VAGUE = frozenset(
    {
        *("after", "anew", "asked", "at", "before", "by", "each", "found", "given", "held", "here"),
        *("how", "kept", "known", "made", "more", "most", "named", "noted", "of", "on", "one"),
        *("others", "own", "rest", "said", "says", "shown", "stays", "taken", "there", "told"),
        *("wanted", "were", "what", "whole"),
    }
)
"""Words that say nothing of the thing that they name."""

VAGUE_PARTS = frozenset(
    {"anew", "asked", "given", "how", "noted", "said", "says", "shown", "taken", "told", "wanted"}
)
"""Words of VAGUE that say nothing either as the first or the last part of a name: `text_shown`.

Other words of VAGUE do in some names: `NotFound`, `n_kept`, `held_out`, `path_of`, `on_progress`.
"""

EXCEPTIONS = {
    "at": "a moment, in JSON of the API and of the store, and in a column of the database",
    "before": "an identifier, in JSON of the store, a query string, and the client's keyword",
    "cancel_asked": "whether a job is to be cancelled, in JSON of the API and in the client",
    "by": "the option --by: what labels are looked up by, also in JSON and in Python",
    "most": "the array node/most of a stored state: the label that most rows of a node have",
}
"""Words that are public contracts, why, and nowhere else."""

ALLOWED = {
    "model_store/xylem_store/alias.py": {"before"},
    "model_store/xylem_store/moves.py": {"at"},
    "service/xylem/admin/jobs/job.py": {"cancel_asked"},
    "service/xylem/admin/jobs/requests.py": {"by"},
    "service/xylem/api/schemas/feedback.py": {"before"},
    "service/xylem/api/schemas/jobs.py": {"cancel_asked"},
    "service/xylem/api/schemas/labels.py": {"at"},
    "service/xylem/api/schemas/registry.py": {"at", "before"},
    "service/xylem/base/access/audit.py": {"at"},
    "service/xylem/cli/combine.py": {"by"},
    "service/xylem/cli/labels.py": {"by"},
    "service/xylem/client/_async/admin.py": {"before"},
    "service/xylem/client/_sync/admin.py": {"before"},
    "service/xylem/client/results.py": {"cancel_asked"},
    "service/xylem/python/making.py": {"by"},
    "service/xylem/thresholds/store/history.py": {"at"},
    "service/xylem/trainers/lomtree/tree.py": {"most"},
    "service/xylem/workflows/label_info.py": {"by"},
}


def bound_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the names of variables, parameters, attributes, functions and classes, with lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name


def is_vague(name: str) -> bool:
    """Return whether a name is one of VAGUE, or begins or ends with one of VAGUE_PARTS."""
    parts = re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", name).strip("_").lower().split("_")
    if len(parts) == 1:
        return parts[0] in VAGUE
    return parts[0] in VAGUE_PARTS or parts[-1] in VAGUE_PARTS


def vague_names(file: Path) -> list[tuple[int, str]]:
    names = bound_names(ast.parse(file.read_text()))
    return [(line, name) for line, name in names if is_vague(name)]


def test_names_say_what_they_name() -> None:
    offenders = []
    for package in PACKAGES:
        for file in sorted(package.rglob("*.py")):
            path = str(file.relative_to(ROOT))
            offenders += [
                f"{path}:{line}: {name}"
                for line, name in vague_names(file)
                if name not in ALLOWED.get(path, ())
            ]
    assert not offenders, "\n".join(offenders)


def test_exceptions_are_needed_and_explained() -> None:
    unneeded = {
        path: names - {name for _, name in vague_names(ROOT / path)}
        for path, names in ALLOWED.items()
    }
    assert not {path: names for path, names in unneeded.items() if names}
    assert {name for names in ALLOWED.values() for name in names} == EXCEPTIONS.keys()
