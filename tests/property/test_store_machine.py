"""R24: the store, and the registry over it, under random operations equal
dictionaries and lists.
"""

import contextlib
import io
import itertools
import shutil
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.helpers.alias_helpers import deny, split
from tests.helpers.faulty_fs import QuickFileSystem
from tests.helpers.small_models import small_draft

from xylem.admin.registry.registry import Registry
from xylem.base.db.engine import Database
from xylem_store import errors
from xylem_store.alias import Alias, TrafficShare
from xylem_store.moves import DENIED, SPLIT, Cause
from xylem_store.store import Store
from xylem_store.version import Model

DRAFTS = [small_draft(seed, n_labels=3, n_features=40, n_trees=1) for seed in range(3)]
NAMES = ("a", "b.2")
names = st.sampled_from(NAMES)
aliases = st.sampled_from(["latest", "stable"])
numbers = st.integers(1, 6)


@dataclass
class Line:
    """An alias: all versions that it named, canary and shadow
    beside the last, and the labels denied.
    """

    history: list[int] = field(default_factory=list)
    beside: tuple[TrafficShare | None, TrafficShare | None] = (None, None)
    denied: tuple[str, ...] = ()

    @property
    def now(self) -> int | None:
        return self.history[-1] if self.history else None

    def others(self) -> list[int]:
        return [one.version for one in self.beside if one is not None]


class StoreMachine(RuleBasedStateMachine):
    """Beside the store, by name: which draft each version has, the last
    number, every alias, what is told.
    """

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.versions: dict[str, dict[int, int]] = {name: {} for name in NAMES}
        self.last = dict.fromkeys(NAMES, 0)
        self.aliases: dict[str, dict[str, Line]] = {name: {} for name in NAMES}
        self.told: dict[str, dict[str, list[object]]] = {name: defaultdict(list) for name in NAMES}
        self.serials = dict.fromkeys(NAMES, 0)
        self.opened: list[tuple[Model, int]] = []
        self.causes = (Cause(f"user {number}") for number in itertools.count())
        self.begin()

    def begin(self) -> None:
        self.store = Store(self.root, fs=QuickFileSystem())
        self.database = Database(f"sqlite:///{self.root}/xylem.db")
        self.registry = Registry(self.store, self.database)

    def teardown(self) -> None:
        self.database.close()
        shutil.rmtree(self.root)

    def line(self, name: str, alias: str) -> Line:
        return self.aliases[name].get(alias, Line())

    def added(self, name: str, draft: int, version: int, latest: bool = True) -> None:
        self.last[name] += 1
        assert version == self.last[name]
        if latest or not self.versions[name]:
            self.moved(name, "latest", [*self.line(name, "latest").history, version])
        self.versions[name][version] = draft

    def moved(self, name: str, alias: str, history: list[int], who: str = "") -> None:
        """An alias names the last of these versions now, with none beside; or it is gone."""
        line, after = self.line(name, alias), Line(history, denied=self.line(name, alias).denied)
        if (line.now, line.beside) != (after.now, after.beside):
            self.told[name][alias].append((who, line.now, after.now))
        self.aliases[name][alias] = after
        if not history:
            del self.aliases[name][alias]

    @initialize(
        n_versions=st.integers(0, 4), weight=st.integers(0, 3), shadow=st.none() | st.just(1)
    )
    def begin_with_versions(self, n_versions: int, weight: int, shadow: int | None) -> None:
        """Of models, versions and splits that are not there, little can be seen."""
        for _ in range(n_versions):
            self.added("a", 0, self.store.publish("a", DRAFTS[0]).version)
        if n_versions > 1:
            for number in (1, 2):
                self.promote("a", number, "stable", False)
            self.split("a", "stable", 1, shadow, weight)
            self.deny("a", "stable", {"b"})

    @rule(name=names, draft=st.integers(0, 2))
    def publish(self, name: str, draft: int) -> None:
        watch = self.store.watch()
        watch.look()
        self.added(name, draft, self.store.publish(name, DRAFTS[draft]).version)
        assert watch.look() and list(watch.models.values()) == self.store.models()

    @rule(name=names, draft=st.integers(0, 2))
    def publish_beside(self, name: str, draft: int) -> None:
        version = self.store.publish(name, DRAFTS[draft], latest=False).version
        self.added(name, draft, version, latest=False)

    @rule(source=names, number=numbers, name=names)
    def copy(self, source: str, number: int, name: str) -> None:
        if number in self.versions[source]:
            file = io.BytesIO()
            self.store.export(source, number, file)
            file.seek(0)
            self.added(name, self.versions[source][number], self.store.import_(file, name).version)

    @rule(name=names, number=numbers, alias=aliases, is_checked=st.booleans())
    def promote(self, name: str, number: int, alias: str, is_checked: bool) -> None:
        cause, line = next(self.causes), self.line(name, alias)
        try:
            move = (self.registry if is_checked else self.store).promote(name, number, alias, cause)
        except (errors.ModelNotFound, errors.VersionNotFound) as error:
            assert number not in self.versions[name]
            assert isinstance(error, errors.ModelNotFound) == (not self.versions[name])
        else:
            assert (move.old_alias.version or None, move.version) == (line.now, number)
            before = line.history[:-1] if line.now == number else line.history
            self.moved(name, alias, [*before, number], cause.who)

    @rule(name=names, alias=aliases, to=st.none() | numbers)
    def rollback(self, name: str, alias: str, to: int | None) -> None:
        cause, line = next(self.causes), self.line(name, alias)
        stays = (
            to == line.now if to is not None else line.beside[0] is not None
        )  # what is beside ends
        there = [v for v in line.history[:-1] if v in self.versions[name] and v != line.now]
        while to is not None and there and there[-1] != to:
            there.pop()
        try:
            move = self.registry.rollback(name, alias, cause, to)
        except errors.ModelNotFound:
            assert not self.versions[name]
        except errors.AliasNotFound:
            assert not line.history
        except errors.NothingToRollBack:
            assert not there and not stays
        else:
            self.moved(name, alias, line.history if stays else there, cause.who)
            assert move.version == self.line(name, alias).now

    @rule(name=names, number=numbers, with_aliases=st.none() | st.booleans())
    def delete(self, name: str, number: int, with_aliases: bool | None) -> None:
        """By the store alone, or by the registry, which may remove aliases before."""
        cause, lines = next(self.causes), self.aliases[name].items()
        naming = {alias for alias, line in lines if line.now == number}
        beside = {alias for alias, line in lines if number in line.others()}
        try:
            if with_aliases is None:
                self.store.delete(name, number)
            else:
                self.registry.delete_version(name, number, cause, with_aliases=with_aliases)
        except errors.VersionInUse as error:
            assert beside or "latest" in naming or (naming and not with_aliases)
            assert all(alias in str(error) for alias in naming | beside)
        except (errors.ModelNotFound, errors.VersionNotFound):
            assert number not in self.versions[name]
        else:
            assert not beside and (not naming or (with_aliases and naming == {"stable"}))
            for alias in naming:
                self.moved(name, alias, [], cause.who)
            del self.versions[name][number]

    @rule(name=names, alias=aliases)
    def delete_alias(self, name: str, alias: str) -> None:
        cause = next(self.causes)
        try:
            self.registry.delete_alias(name, alias, cause)
        except errors.Conflict:
            assert alias == "latest"
        except (errors.ModelNotFound, errors.AliasNotFound) as error:
            assert alias == "stable" and alias not in self.aliases[name]
            assert isinstance(error, errors.ModelNotFound) == (not self.versions[name])
        else:
            assert alias == "stable"
            self.moved(name, alias, [], cause.who)

    @rule(
        name=names,
        alias=aliases,
        canary=numbers,
        shadow=st.none() | numbers,
        weight=st.integers(0, 3),
    )
    def split(self, name: str, alias: str, canary: int, shadow: int | None, weight: int) -> None:
        beside = (
            TrafficShare(canary, weight) if weight else None,
            None if shadow is None else TrafficShare(shadow, 7),
        )
        line, wanted = self.line(name, alias), Line(beside=beside).others()
        try:
            split(self.store, name, *beside, alias)
        except errors.BadSplit:
            assert line.now in wanted
        except (errors.AliasNotFound, errors.ModelNotFound, errors.VersionNotFound):
            assert not line.history or not set(wanted) <= set(self.versions[name])
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
        cause = next(self.causes)
        try:
            gone = self.registry.delete_model(name, cause, confirm=name)
        except errors.ModelNotFound:
            assert not self.versions[name]
            with pytest.raises(errors.ModelNotFound):
                self.store.delete_model(name)
            return
        assert gone.versions == tuple(sorted(self.versions[name]))
        assert set(gone.aliases) == set(self.aliases[name])
        self.versions[name].clear()
        for alias in gone.aliases:
            self.moved(name, alias, [], cause.who)

    @rule(name=names, ref=st.one_of(aliases, numbers), verify=st.booleans())
    def open(self, name: str, ref: str | int, verify: bool) -> None:
        there = self.versions[name] if isinstance(ref, int) else self.aliases[name]
        try:
            model = self.store.open(name, ref, verify=verify)
        except (errors.ModelNotFound, errors.VersionNotFound, errors.AliasNotFound):
            assert ref not in there
            return
        version = ref if isinstance(ref, int) else self.line(name, ref).now
        assert model.manifest.version == version
        self.opened.append((model, self.versions[name][version]))

    @rule()
    def begin_anew(self) -> None:
        self.database.close()
        self.begin()
        assert self.store.collect() == []

    @rule(name=names)
    def look_at_the_history(self, name: str) -> None:
        told = defaultdict(list)
        with contextlib.suppress(errors.ModelNotFound):
            for row in reversed(self.registry.history(name, limit=1000)):
                if row.action not in (SPLIT, DENIED):
                    told[row.alias].append((row.who, row.from_version, row.to_version))
        assert told == self.told[name]

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
                line = self.line(name, alias)
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
TestStoreMachine.settings = settings(max_examples=85, stateful_step_count=25)
