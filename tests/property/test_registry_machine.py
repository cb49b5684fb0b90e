"""The registry under random operations, with writers beside it, equals lists: aliases, history, versions."""

import contextlib
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from model_store import errors
from model_store.moves import Cause
from model_store.store import Store
from service.db.engine import Database
from service.registry.registry import Registry
from tests.faulty_fs import QuickFileSystem
from tests.small_models import small_draft

DRAFT = small_draft(n_labels=3, n_features=40, n_trees=1)
aliases = st.sampled_from(["latest", "stable"])
numbers = st.integers(1, 5)
Row = tuple[str, int | None, int | None]


class RegistryMachine(RuleBasedStateMachine):
    """Beside the registry: the versions, each alias as a list, and every move as the history tells it."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.open()
        self.versions: set[int] = set()
        self.last = 0
        self.aliases: dict[str, list[int]] = {}
        self.told: dict[str, list[Row]] = {"latest": [], "stable": []}
        self.serial = 0

    def open(self) -> None:
        self.store = Store(self.root / "store", fs=QuickFileSystem())
        self.database = Database(f"sqlite:///{self.root}/xylem.db")
        self.registry = Registry(self.store, self.database)

    def teardown(self) -> None:
        self.database.close()
        shutil.rmtree(self.root)

    def cause(self) -> Cause:
        self.serial += 1
        return Cause(f"user {self.serial}")

    def named(self, alias: str) -> int | None:
        return self.aliases[alias][-1] if alias in self.aliases else None

    def tell(self, alias: str, who: str, before: int | None) -> None:
        """What the history will say."""
        if before != self.named(alias):
            self.told[alias].append((who, before, self.named(alias)))

    def push(self, alias: str, version: int, who: str) -> None:
        before, line = self.named(alias), self.aliases.setdefault(alias, [])
        if before != version:
            line.append(version)
        self.tell(alias, who, before)

    def publish(self, latest: bool) -> None:
        self.last += 1
        assert self.store.publish("m", DRAFT, latest=latest).version == self.last
        if latest or not self.versions:
            self.push("latest", self.last, "")
        self.versions.add(self.last)

    @rule()
    def publish_past_the_registry(self) -> None:
        self.publish(latest=True)

    @rule()
    def publish_beside(self) -> None:
        self.publish(latest=False)

    @rule(number=numbers, alias=aliases)
    def promote(self, number: int, alias: str) -> None:
        cause, before = self.cause(), self.named(alias)
        try:
            move = self.registry.promote("m", number, alias, cause)
        except (errors.ModelNotFound, errors.VersionNotFound):
            assert number not in self.versions
            return
        assert (move.before.version or None, move.now) == (before, number)
        self.push(alias, number, cause.who)

    @rule(alias=aliases, to=st.one_of(st.none(), numbers))
    def rollback(self, alias: str, to: int | None) -> None:
        cause, before, line = self.cause(), self.named(alias), self.aliases.get(alias, [])
        there = [version for version in line[:-1] if version in self.versions and version != line[-1]]
        while to is not None and there and there[-1] != to:
            there.pop()
        try:
            move = self.registry.rollback("m", alias, cause, to)
        except (errors.ModelNotFound, errors.AliasNotFound):
            assert not line
            return
        except errors.NothingToRollBack:
            assert not there
            assert to is None or to != before
            return
        if to is None or to != before:
            self.aliases[alias] = there
        assert move.now == self.named(alias)
        self.tell(alias, cause.who, before)

    @rule()
    def unalias(self) -> None:
        cause, before = self.cause(), self.named("stable")
        try:
            self.registry.delete_alias("m", "stable", cause)
        except (errors.ModelNotFound, errors.AliasNotFound):
            assert before is None
        else:
            del self.aliases["stable"]
            self.tell("stable", cause.who, before)

    @rule()
    def unalias_latest(self) -> None:
        with pytest.raises(errors.Conflict):
            self.registry.delete_alias("m", "latest", self.cause())

    @rule(number=numbers, with_aliases=st.booleans())
    def delete(self, number: int, with_aliases: bool) -> None:
        cause = self.cause()
        users = [alias for alias in self.aliases if self.named(alias) == number]
        try:
            self.registry.delete_version("m", number, cause, with_aliases=with_aliases)
        except errors.VersionInUse:
            assert "latest" in users or (users and not with_aliases)
        except (errors.ModelNotFound, errors.VersionNotFound):
            assert number not in self.versions
        else:
            assert not users or (with_aliases and users == ["stable"])
            for alias in users:
                del self.aliases[alias]
                self.tell(alias, cause.who, number)
            self.versions.remove(number)

    @rule(really=st.integers(0, 4))
    def delete_model(self, really: int) -> None:
        if really and self.versions:
            return
        cause, before = self.cause(), {alias: line[-1] for alias, line in self.aliases.items()}
        try:
            gone = self.registry.delete_model("m", cause, confirm="m")
        except errors.ModelNotFound:
            assert not self.versions
            return
        assert set(gone.versions) == self.versions
        self.versions.clear()
        self.aliases.clear()
        for alias, version in before.items():
            self.tell(alias, cause.who, version)

    @rule()
    def begin_anew(self) -> None:
        self.database.close()
        self.open()

    @rule()
    def look_at_the_history(self) -> None:
        told: dict[str, list[Row]] = {"latest": [], "stable": []}
        with contextlib.suppress(errors.ModelNotFound):
            for row in reversed(self.registry.history("m", limit=1000)):
                told[row.alias].append((row.who, row.from_version, row.to_version))
        assert told == self.told

    @invariant()
    def aliases_agree(self) -> None:
        assert set(self.store.versions("m")) == self.versions
        for alias in ("latest", "stable"):
            try:
                found = self.store.alias("m", alias).version
            except (errors.AliasNotFound, errors.ModelNotFound):
                found = None
            assert found == self.named(alias)


TestRegistryMachine = RegistryMachine.TestCase
TestRegistryMachine.settings = settings(max_examples=25, stateful_step_count=20)
