"""The arrays that kernels index by: a table of bounds, which FORMAT.md
has too and every opening holds to.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.golden.make_golden import rows_of
from tests.helpers.combined_models import full_draft
from tests.helpers.small_models import random_rerank, small_draft

from xylem.base.rows import LabelRows
from xylem.serving.stores import check_served
from xylem.trainers.source import TrainingSet
from xylem.vocabulary.trie import NameTrie
from xylem.workflows.going_on import kept_rows, read_kept
from xylem_store.bounds import BOUNDS, Bound
from xylem_store.compiled.handles import kinds_of
from xylem_store.ensemble import TreeEnsemble
from xylem_store.errors import Corrupt
from xylem_store.extras import Rerank
from xylem_store.manifest import Manifest
from xylem_store.members import Ranker
from xylem_store.names import NameTable
from xylem_store.near import NearRows
from xylem_store.version import Draft, manifest_of, model_of as model_of_draft, pack, unpack

FORMAT = Path(__file__).resolve().parents[2] / "model_store" / "FORMAT.md"

TABLES = {"offsets", "slots"}
PACKED = {"ensemble/directory", "ensemble/blocks", "ensemble/sparse"}
"""The last parts of the arrays of name tables, and packed numbers: the
last words of the table name them.
"""

NO_INDEX = {"near/value", "names/node_concepts", "names/kinds", "names/is_qualified", "names/utf8"}
"""Integers that lead nowhere: weights, counts, kinds, bytes."""


def shown(name: str, bound: Bound) -> tuple[str, str, str]:
    more = (
        f" {'+' if bound.size_offset > 0 else '-'} {abs(bound.size_offset)}"
        if bound.size_offset
        else ""
    )
    return (
        f"`{name}`",
        "offsets" if bound.ascends else str(bound.least),
        f"`{bound.sized_by}`{more}",
    )


def test_the_table_is_that_of_the_format() -> None:
    section = FORMAT.read_text().partition("### Bounds\n")[2].partition("### ")[0]
    rows = re.findall(r"^\| (`.+?) \| (.+?) \| (.+?) \|$", section, re.MULTILINE)
    assert rows == [shown(*entry) for entry in BOUNDS.items()]
    assert all(f"`{name}`" in section for name in (*PACKED, *TABLES))


def integers(draft: Draft) -> Iterator[str]:
    """The arrays of integers of a version that kernels are given; those
    of a group are a struct of theirs.
    """
    for name, array in draft.arrays().items():
        group = name.rpartition("/")[0]
        if group in ("ensemble", "tail", "near", "names", "ranker") and array.dtype.kind in "iu":
            yield name


def test_every_array_of_integers_of_a_kernel_is_in_the_table() -> None:
    structs = {"tail": Rerank, "ranker": Ranker, "near": NearRows, "names": NameTrie}
    given = {
        f"{group}/{field}"
        for group, struct in structs.items()
        for field, kind in kinds_of(struct).items()
        if np.dtype(kind.dtype).kind in "iu"
    }
    ensemble = {
        name for draft in (TREE, FOREST) for name in integers(draft) if name.startswith("ensemble/")
    }
    assert ensemble <= {f"ensemble/{field}" for field in TreeEnsemble._fields}
    of_tables = {f"names/{field}" for field in NameTable._fields}
    assert (given - of_tables) | ensemble <= BOUNDS.keys() | PACKED | NO_INDEX
    assert not (BOUNDS.keys() | PACKED) & NO_INDEX


def with_rows(draft: Draft) -> Draft:
    """A version that keeps two training rows."""
    labels = LabelRows(np.array([0, 1, 3]), np.array([0, 0, 2], np.int32), draft.labels.n_names)
    kept = kept_rows(TrainingSet(rows_of(draft.n_features), labels))
    return replace(draft, extra={**draft.extra, **kept})


TREE = with_rows(small_draft(1, n_labels=25, arity=5, n_features=33, share=0.1, n_trees=3))
FOREST = small_draft(
    7, kind="decision-tree", n_labels=12, arity=4, n_trees=2, extra=random_rerank(7, 12, 70)
)
COMBINED = full_draft()


def opened(manifest: Manifest, arrays: Mapping[str, Any]) -> None:
    """Open a version with right checksums, as servers do; read what it keeps, as trainings do."""
    plain = replace(model_of_draft(TREE), manifest=replace(manifest, arrays={}), arrays=arrays)
    model = unpack(pack(plain))
    check_served(model)
    read_kept(model)


CASES = [
    pytest.param(draft, prefix, name, id=f"{label}-{prefix}{name}")
    for label, draft, prefixes in (
        ("tree", TREE, [""]),
        ("forest", FOREST, [""]),
        ("combined", COMBINED, ["", "member1/"]),
    )
    for prefix in prefixes
    for name, array in draft.arrays().items()
    if name.startswith(prefix) and array.size
    for name in [name.removeprefix(prefix)]
    if name.rstrip("0123456789") in BOUNDS or name in PACKED or name.rpartition("/")[2] in TABLES
]


def test_every_row_of_the_table_has_a_case() -> None:
    tried = {case.values[2].rstrip("0123456789") for case in CASES}
    assert BOUNDS.keys() | PACKED <= tried


@pytest.mark.parametrize(("draft", "prefix", "name"), CASES)
def test_a_number_out_of_bounds_is_refused(draft: Draft, prefix: str, name: str) -> None:
    manifest, arrays = manifest_of(draft), draft.arrays()
    opened(manifest, arrays)
    array = arrays[f"{prefix}{name}"]
    bound = BOUNDS.get(name.rstrip("0123456789"))
    beyond = [np.iinfo(array.dtype).max]
    if bound is not None:
        inside = {
            key.removeprefix(prefix): each for key, each in arrays.items() if key.startswith(prefix)
        }
        rows = {"n_features", "n_columns"}
        size = bound.size_offset + (
            manifest.n_features if bound.sized_by in rows else len(inside[bound.sized_by])
        )
        beyond += [size + bound.ascends, bound.least - 1]
    elif name.endswith("slots"):
        beyond += [-2, array.size]
    accepted = []
    for value in beyond:
        for place in {0, array.size // 2, array.size - 1}:
            changed = array.copy()
            changed.reshape(-1)[place] = value
            try:
                opened(manifest, {**arrays, f"{prefix}{name}": changed})
            except Corrupt:
                continue
            accepted.append((place, value))
    assert accepted == []
