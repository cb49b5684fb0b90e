"""R24: the store under random operations equals a dictionary."""

import io
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from model_store import errors
from model_store.alias import Alias, Beside
from model_store.store import Store
from model_store.version import Model
from tests.alias_helpers import deny, split
from tests.faulty_fs import QuickFileSystem
from tests.small_models import small_draft

DRAFTS = [small_draft(seed, n_labels=3, n_features=40, n_trees=1) for seed in range(3)]
NAMES = ("a", "b.2")
names = st.sampled_from(NAMES)
aliases = st.sampled_from(["latest", "stable"])
numbers = st.integers(1, 6)


@dataclass
class Line:
    """An alias: all versions that it named, canary and shadow beside the last, and the labels denied."""

    history: list[int] = field(default_factory=list)
    beside: tuple[Beside | None, Beside | None] = (None, None)
    denied: tuple[str, ...] = ()


class StoreMachine(RuleBasedStateMachine):
    """Beside the store, by name: which draft each version has, the last number, and every alias."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.store = Store(self.root, fs=QuickFileSystem())
        self.versions: dict[str, dict[int, int]] = {name: {} for name in NAMES}
        self.last = dict.fromkeys(NAMES, 0)
        self.aliases: dict[str, dict[str, Line]] = {name: {} for name in NAMES}
        self.serials = dict.fromkeys(NAMES, 0)
        self.opened: list[tuple[Model, int]] = []

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    def added(self, name: str, draft: int, version: int) -> None:
        self.last[name] += 1
        assert version == self.last[name]
        self.versions[name][version] = draft
        self.moved(name, "latest", version)

    def moved(self, name: str, alias: str, version: int) -> None:
        line = self.aliases[name].setdefault(alias, Line())
        line.beside = None, None
        if line.history[-1:] != [version]:
            line.history.append(version)

    @rule(name=names, draft=st.integers(0, 2))
    def publish(self, name: str, draft: int) -> None:
        generation = self.store.generation()
        self.added(name, draft, self.store.publish(name, DRAFTS[draft]).version)
        assert self.store.generation() != generation

    @rule(source=names, number=numbers, name=names)
    def copy(self, source: str, number: int, name: str) -> None:
        if number in self.versions[source]:
            file = io.BytesIO()
            self.store.export(source, number, file)
            file.seek(0)
            self.added(name, self.versions[source][number], self.store.import_(file, name).version)

    @rule(name=names, number=numbers, alias=aliases)
    def promote(self, name: str, number: int, alias: str) -> None:
        try:
            self.store.promote(name, number, alias)
        except (errors.ModelNotFound, errors.VersionNotFound) as error:
            assert number not in self.versions[name]
            assert isinstance(error, errors.ModelNotFound) == (not self.versions[name])
        else:
            self.moved(name, alias, number)

    @rule(name=names, alias=aliases)
    def rollback(self, name: str, alias: str) -> None:
        line = self.aliases[name].get(alias, Line())
        there = [v for v in line.history[:-1] if v in self.versions[name] and v != line.history[-1]]
        try:
            self.store.rollback(name, alias)
        except errors.ModelNotFound:
            assert not self.versions[name]
        except errors.AliasNotFound:
            assert not line.history
        except errors.NothingToRollBack:
            assert not there and line.beside[0] is None
        else:
            if line.beside[0] is None:
                line.history = there
            line.beside = None, None  # where there was a canary, nothing else moves

    @rule(name=names, number=numbers)
    def delete(self, name: str, number: int) -> None:
        users = [
            alias
            for alias, line in self.aliases[name].items()
            if number in (line.history[-1], *(one.version for one in line.beside if one is not None))
        ]
        try:
            self.store.delete(name, number)
        except errors.VersionInUse as error:
            assert users
            assert all(alias in str(error) for alias in users)
        except (errors.ModelNotFound, errors.VersionNotFound):
            assert number not in self.versions[name]
        else:
            assert not users
            del self.versions[name][number]

    @rule(name=names, alias=aliases)
    def delete_alias(self, name: str, alias: str) -> None:
        try:
            self.store.delete_alias(name, alias)
        except errors.Conflict:
            assert alias == "latest"
        except (errors.ModelNotFound, errors.AliasNotFound) as error:
            assert alias not in self.aliases[name]
            assert isinstance(error, errors.ModelNotFound) == (not self.versions[name])
        else:
            del self.aliases[name][alias]

    @rule(name=names, alias=aliases, canary=numbers, shadow=st.none() | numbers, weight=st.integers(0, 3))
    def split(self, name: str, alias: str, canary: int, shadow: int | None, weight: int) -> None:
        beside = Beside(canary, weight) if weight else None, None if shadow is None else Beside(shadow, 7)
        named = [one.version for one in beside if one is not None]
        line = self.aliases[name].get(alias, Line())
        try:
            split(self.store, name, *beside, alias)
        except errors.BadSplit:
            assert line.history[-1] in named
        except (errors.AliasNotFound, errors.ModelNotFound, errors.VersionNotFound):
            assert not line.history or not set(named) <= set(self.versions[name])
        else:
            line.beside = beside

    @rule(name=names, alias=aliases, labels=st.sets(st.sampled_from("abc")))
    def deny(self, name: str, alias: str, labels: set[str]) -> None:
        try:
            deny(self.store, name, labels, alias)
        except (errors.AliasNotFound, errors.ModelNotFound):
            assert alias not in self.aliases[name]
        else:
            self.aliases[name][alias].denied = tuple(sorted(labels))

    @rule(name=names, really=st.integers(0, 3))
    def delete_model(self, name: str, really: int) -> None:
        if really and self.versions[name]:
            return  # or nothing much would ever be there
        try:
            versions = self.store.delete_model(name)
        except errors.ModelNotFound:
            assert not self.versions[name]
        else:
            assert versions == tuple(sorted(self.versions[name]))
            self.versions[name].clear()
            self.aliases[name].clear()

    @rule(name=names, ref=st.one_of(aliases, numbers), verify=st.booleans())
    def open(self, name: str, ref: str | int, verify: bool) -> None:
        there = self.versions[name] if isinstance(ref, int) else self.aliases[name]
        try:
            model = self.store.open(name, ref, verify=verify)
        except (errors.ModelNotFound, errors.VersionNotFound, errors.AliasNotFound):
            assert ref not in there
            return
        version = ref if isinstance(ref, int) else self.aliases[name][ref].history[-1]
        assert model.manifest.version == version
        self.opened.append((model, self.versions[name][version]))

    @rule()
    def begin_anew(self) -> None:
        self.store = Store(self.root, fs=QuickFileSystem())
        assert self.store.collect() == []

    @invariant()
    def lists_agree(self) -> None:
        found = {info.name: info for info in self.store.models()}
        assert found.keys() == {name for name in NAMES if self.versions[name]}
        for name, info in found.items():
            assert info.versions == tuple(sorted(self.versions[name]))
            assert info.broken_aliases == ()
            assert info.documents.keys() == self.aliases[name].keys()
            moves = self.store.moves(name)
            ids = [move.id for move in moves]
            assert ids == sorted(set(ids)) and ids[-1] >= self.serials[name]
            self.serials[name] = ids[-1]
            for alias, found in info.documents.items():
                line = self.aliases[name][alias]
                *before, now = line.history
                assert found == Alias(now, tuple(before), *line.beside, line.denied, found.serial)
                (last,) = [move for move in moves if move.id == found.serial]
                assert (last.alias, last.to_version) == (alias, found.version)

    @invariant()
    def opened_models_stay_valid(self) -> None:
        for model, draft in self.opened[-3:]:
            for name, array in DRAFTS[draft].arrays().items():
                np.testing.assert_array_equal(model.arrays[name], array)


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=60, stateful_step_count=25)
