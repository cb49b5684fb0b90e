"""R24: the store under random operations equals a dictionary."""

import io
import shutil
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from model_store.alias import Alias, Beside
from model_store.errors import (
    AliasNotFound,
    BadSplit,
    Conflict,
    ModelNotFound,
    NothingToRollBack,
    VersionInUse,
    VersionNotFound,
)
from model_store.store import Store
from model_store.version import Model
from tests.alias_helpers import deny, split
from tests.faulty_fs import QuickFileSystem
from tests.small_models import small_draft

DRAFTS = [small_draft(seed, n_labels=3, n_features=40, n_trees=1) for seed in range(3)]
names = st.sampled_from(["a", "b.2"])
aliases = st.sampled_from(["latest", "stable"])
numbers = st.integers(1, 6)


class StoreMachine(RuleBasedStateMachine):
    """Beside the store: which draft each version has, the last number, and every alias as a list."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.store = Store(self.root, fs=QuickFileSystem())
        self.versions: dict[str, dict[int, int]] = {}
        self.last: dict[str, int] = {}
        self.aliases: dict[str, dict[str, list[int]]] = {}
        self.splits: dict[tuple[str, str], tuple[Beside | None, Beside | None]] = {}
        self.denied: dict[tuple[str, str], tuple[str, ...]] = {}
        self.serials: dict[str, int] = {}
        self.opened: list[tuple[Model, int]] = []

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    def added(self, name: str, draft: int, version: int) -> None:
        self.last[name] = self.last.get(name, 0) + 1
        assert version == self.last[name]
        self.versions.setdefault(name, {})[version] = draft
        self.moved(name, "latest", version)

    def moved(self, name: str, alias: str, version: int) -> None:
        self.splits.pop((name, alias), None)
        history = self.aliases.setdefault(name, {}).setdefault(alias, [])
        if history[-1:] != [version]:
            history.append(version)

    @rule(name=names, draft=st.integers(0, 2))
    def publish(self, name: str, draft: int) -> None:
        generation = self.store.generation()
        self.added(name, draft, self.store.publish(name, DRAFTS[draft]).version)
        assert self.store.generation() != generation

    @rule(source=names, number=numbers, name=names)
    def copy(self, source: str, number: int, name: str) -> None:
        if number in self.versions.get(source, {}):
            file = io.BytesIO()
            self.store.export(source, number, file)
            file.seek(0)
            self.added(name, self.versions[source][number], self.store.import_(file, name).version)

    @rule(name=names, number=numbers, alias=aliases)
    def promote(self, name: str, number: int, alias: str) -> None:
        try:
            self.store.promote(name, number, alias)
        except (ModelNotFound, VersionNotFound) as error:
            assert number not in self.versions.get(name, {})
            assert isinstance(error, ModelNotFound) == (not self.versions.get(name))
        else:
            self.moved(name, alias, number)

    @rule(name=names, alias=aliases)
    def rollback(self, name: str, alias: str) -> None:
        history = self.aliases.get(name, {}).get(alias, [])
        there = [v for v in history[:-1] if v in self.versions[name] and v != history[-1]]
        split = self.splits.pop((name, alias), None)
        if split is not None and split[0] is not None:  # which ends, and nothing else moves
            self.store.rollback(name, alias)
            return
        if split is not None and not there:
            self.splits[name, alias] = split
        try:
            self.store.rollback(name, alias)
        except ModelNotFound:
            assert name not in self.versions
        except AliasNotFound:
            assert not history
        except NothingToRollBack:
            assert not there
        else:
            self.aliases[name][alias] = there

    @rule(name=names, number=numbers)
    def delete(self, name: str, number: int) -> None:
        users = [alias for alias, history in self.aliases.get(name, {}).items() if history[-1] == number]
        users += [
            alias
            for (n, alias), beside in self.splits.items()
            if n == name and number in [one.version for one in beside if one is not None]
        ]
        try:
            self.store.delete(name, number)
        except VersionInUse as error:
            assert users
            assert all(alias in str(error) for alias in users)
        except (ModelNotFound, VersionNotFound):
            assert number not in self.versions.get(name, {})
        else:
            assert not users
            del self.versions[name][number]

    @rule(name=names, alias=aliases)
    def delete_alias(self, name: str, alias: str) -> None:
        try:
            self.store.delete_alias(name, alias)
        except Conflict:
            assert alias == "latest"
        except (ModelNotFound, AliasNotFound) as error:
            assert alias not in self.aliases.get(name, {})
            assert isinstance(error, ModelNotFound) == (name not in self.versions)
        else:
            del self.aliases[name][alias]
            self.splits.pop((name, alias), None)
            self.denied.pop((name, alias), None)

    @rule(name=names, alias=aliases, canary=numbers, shadow=st.none() | numbers, weight=st.integers(0, 3))
    def split(self, name: str, alias: str, canary: int, shadow: int | None, weight: int) -> None:
        beside = (canary, weight) if weight else None, None if shadow is None else (shadow, 7)
        named = [one[0] for one in beside if one is not None]
        history = self.aliases.get(name, {}).get(alias, [])
        try:
            split(self.store, name, *beside, alias)
        except BadSplit:
            assert history[-1] in named
        except (AliasNotFound, ModelNotFound, VersionNotFound):
            assert not history or not set(named) <= set(self.versions[name])
        else:
            first, second = (None if one is None else Beside(*one) for one in beside)
            self.splits[name, alias] = first, second

    @rule(name=names, alias=aliases, labels=st.sets(st.sampled_from("abc")))
    def deny(self, name: str, alias: str, labels: set[str]) -> None:
        try:
            deny(self.store, name, labels, alias)
        except (AliasNotFound, ModelNotFound):
            assert alias not in self.aliases.get(name, {})
        else:
            self.denied[name, alias] = tuple(sorted(labels))

    @rule(name=names, really=st.integers(0, 3))
    def delete_model(self, name: str, really: int) -> None:
        if really and name in self.versions:
            return  # or nothing much would ever be there
        try:
            versions = self.store.delete_model(name)
        except ModelNotFound:
            assert name not in self.versions
        else:
            assert versions == tuple(sorted(self.versions.pop(name)))
            del self.aliases[name]
            for kept in (self.splits, self.denied):
                for key in [key for key in kept if key[0] == name]:
                    del kept[key]

    @rule(name=names, ref=st.one_of(aliases, numbers), verify=st.booleans())
    def open(self, name: str, ref: str | int, verify: bool) -> None:
        try:
            model = self.store.open(name, ref, verify=verify)
        except (ModelNotFound, VersionNotFound, AliasNotFound):
            if isinstance(ref, int):
                assert ref not in self.versions.get(name, {})
            else:
                assert ref not in self.aliases.get(name, {})
            return
        version = ref if isinstance(ref, int) else self.aliases[name][ref][-1]
        assert model.manifest.version == version
        self.opened.append((model, self.versions[name][version]))

    @rule()
    def begin_anew(self) -> None:
        self.store = Store(self.root, fs=QuickFileSystem())
        assert self.store.collect() == []

    @invariant()
    def lists_agree(self) -> None:
        found = {info.name: info for info in self.store.models()}
        assert found.keys() == self.versions.keys()
        for name, info in found.items():
            assert info.versions == tuple(sorted(self.versions[name]))
            assert info.broken_aliases == ()
            assert info.documents.keys() == self.aliases[name].keys()
            for alias, found in info.documents.items():
                history = self.aliases[name][alias]
                beside = self.splits.get((name, alias), (None, None))
                denied = self.denied.get((name, alias), ())
                assert found == Alias(history[-1], tuple(history[:-1]), *beside, denied, found.serial)
            moves = self.store.moves(name)
            ids = [move.id for move in moves]
            assert ids == sorted(set(ids)) and ids[-1] >= self.serials.get(name, 0)
            self.serials[name] = ids[-1]
            for alias, found in info.documents.items():
                (last,) = [move for move in moves if move.id == found.serial]
                assert (last.alias, last.to_version) == (alias, found.version)

    @invariant()
    def opened_models_stay_valid(self) -> None:
        for model, draft in self.opened[-3:]:
            for name, array in DRAFTS[draft].arrays().items():
                np.testing.assert_array_equal(model.arrays[name], array)


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=60, stateful_step_count=25)
