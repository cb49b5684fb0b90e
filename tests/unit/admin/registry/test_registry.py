"""The registry: what it moves, removes and refuses, and what its history says of it."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select
from tests.helpers.faulty_fs import QuickFileSystem
from tests.helpers.small_models import small_draft

from xylem.admin.registry.facts import provenance
from xylem.admin.registry.registry import Registry
from xylem.base.db.engine import Database
from xylem.base.db.tables import VERSIONS
from xylem.base.errors import BadParameter, DatabaseUnavailable
from xylem_store import errors
from xylem_store.identifiers import LATEST
from xylem_store.moves import Cause
from xylem_store.origin import ORIGIN, content_digest, json_array, parent_of
from xylem_store.store import Store

DRAFT = small_draft(n_labels=3, n_features=40, n_trees=1)
ALICE = Cause("alice", "because")


class House:
    """A store with versions of a model `m`, its database and registry."""

    def __init__(self, root: Path, url: str, n_versions: int = 4) -> None:
        self.store = Store(root / "store", fs=QuickFileSystem())
        for _ in range(n_versions):
            self.store.publish("m", DRAFT)
        self.database = Database(url)
        self.registry = Registry(self.store, self.database)

    def rows(self, alias: str | None = None) -> list[tuple[Any, ...]]:
        """What the history says, the oldest first."""
        return [
            (row.alias, row.action, row.from_version, row.to_version, row.who)
            for row in reversed(self.registry.history("m", alias))
        ]

    def has_thresholds(self, *versions: int) -> None:
        facts = {"model": "m", "epoch": 1, "base_epoch": 0, "n_events": 0}
        with self.database.write() as connection:
            connection.execute(
                insert(VERSIONS), [{**facts, "version": version} for version in versions]
            )

    def thresholds(self) -> list[int]:
        with self.database.read() as connection:
            return sorted(connection.execute(select(VERSIONS.c.version)).scalars())


@pytest.fixture
def house(tmp_path: Path, database_url: str) -> Iterator[House]:
    found = House(tmp_path, database_url)
    yield found
    found.database.close()


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[House]:
    """As `house`, over SQLite alone."""
    found = House(tmp_path, f"sqlite:///{tmp_path}/xylem.db")
    yield found
    found.database.close()


FIRST = [(LATEST, "published", number or None, number + 1, "") for number in range(4)]


def test_moves_are_made_and_told(house: House) -> None:
    registry = house.registry
    assert house.rows() == FIRST
    move = registry.promote(
        "m", 2, "stable", Cause("alice", "it is good", "job-1", {"promoted": True})
    )
    assert move.move() == {
        "model": "m",
        "alias": "stable",
        "version": 2,
        "previous_version": None,
    }
    registry.promote("m", LATEST, "stable", ALICE)
    registry.promote("m", 4, "stable", ALICE)  # where it is already
    assert registry.rollback("m", "stable", ALICE).version == 2
    assert registry.rollback("m", LATEST, ALICE, to=1).old_alias.version == 4
    registry.delete_alias("m", "stable", ALICE)
    assert house.rows() == [
        *FIRST,
        ("stable", "promoted", None, 2, "alice"),
        ("stable", "promoted", 2, 4, "alice"),
        ("stable", "rolled-back", 4, 2, "alice"),
        (LATEST, "rolled-back", 4, 1, "alice"),
        ("stable", "removed", 2, None, "alice"),
    ]
    assert house.rows("stable") == house.rows()[4:7] + house.rows()[8:]
    told = registry.history("m")[-5]
    assert (told.why, told.job, told.verdict) == ("it is good", "job-1", {"promoted": True})
    page = registry.history("m", limit=4)
    assert page + registry.history("m", before_id=page[-1].id) == registry.history("m")


def test_nothing_damaged_or_foreign_is_promoted(house: House) -> None:
    registry, versions = house.registry, house.store.root / "models/m/versions"
    file = versions / "2" / "arrays" / "labels.utf8.npy"
    file.chmod(0o644)
    file.write_bytes(file.read_bytes()[:-1] + b"X")
    (versions / "3").rename(versions / "7")  # the files of another version
    registry.promote("m", 1, "stable", ALICE)
    before = house.rows()
    for call, kind in (
        (lambda: registry.promote("m", 2, "stable", ALICE), errors.Corrupt),
        (lambda: registry.promote("m", 7, "stable", ALICE), errors.Corrupt),
        (lambda: registry.promote("m", 3, "stable", ALICE), errors.VersionNotFound),
        (lambda: registry.promote("m", "nothing", "stable", ALICE), errors.AliasNotFound),
        (lambda: registry.promote("other", 1, "stable", ALICE), errors.ModelNotFound),
        (lambda: registry.promote("../m", 1, "stable", ALICE), errors.InvalidName),
        (lambda: registry.promote("m", 1, "../stable", ALICE), errors.InvalidName),
        (lambda: registry.promote("m", 1, "12", ALICE), errors.InvalidName),
        (lambda: registry.rollback("m", LATEST, ALICE, to=2), errors.Corrupt),
        (lambda: registry.delete_alias("m", LATEST, ALICE), errors.Conflict),
        (lambda: registry.delete_alias("m", "nothing", ALICE), errors.AliasNotFound),
    ):
        with pytest.raises(kind):
            call()
    assert (house.store.alias("m", "stable").version, house.store.alias("m").version) == (1, 4)
    assert house.rows() == before


def test_a_version_in_use_goes_only_with_its_aliases(house: House) -> None:
    registry = house.registry
    house.has_thresholds(1, 2, 3, 9)  # 9 was never a version here: another store may have it
    for alias in ("a", "b"):
        registry.promote("m", 2, alias, ALICE)
    with pytest.raises(errors.VersionInUse, match="a, b"):
        registry.delete_version("m", 2, ALICE)
    with pytest.raises(errors.VersionInUse, match="latest"):
        registry.delete_version("m", 4, ALICE, with_aliases=True)
    gone = registry.delete_version("m", 2, ALICE, with_aliases=True)
    assert (gone.versions, gone.aliases, gone.thresholds) == ((2,), ("a", "b"), True)
    assert house.rows()[-2:] == [
        ("a", "removed", 2, None, "alice"),
        ("b", "removed", 2, None, "alice"),
    ]
    assert registry.delete_version("m", 1, ALICE, thresholds=False).thresholds is False
    assert house.thresholds() == [1, 3, 9]
    again = registry.delete_version("m", 1, ALICE)
    assert (again.versions, again.thresholds) == ((), True)
    for version in (1, 2, 9, 0):
        with pytest.raises(errors.VersionNotFound if version else errors.InvalidName):
            registry.delete_version("m", version, ALICE)
    assert house.thresholds() == [3, 9]


def test_a_whole_model_goes_when_its_name_is_said_twice(house: House) -> None:
    registry = house.registry
    house.has_thresholds(1, 4)
    registry.promote("m", 2, "stable", ALICE)
    for confirm in ("", "M", "other"):
        with pytest.raises(BadParameter, match="confirm"):
            registry.delete_model("m", ALICE, confirm=confirm)
    gone = registry.delete_model("m", ALICE, confirm="m")
    assert (gone.versions, sorted(gone.aliases), gone.thresholds) == (
        (1, 2, 3, 4),
        [LATEST, "stable"],
        True,
    )
    assert house.thresholds() == []
    assert sorted(house.rows()[-2:]) == [
        (LATEST, "removed", 4, None, "alice"),
        ("stable", "removed", 2, None, "alice"),
    ]
    with pytest.raises(errors.ModelNotFound):
        registry.delete_model("m", ALICE, confirm="m")
    house.has_thresholds(3)  # as a crash would leave them
    assert registry.delete_model("m", ALICE, confirm="m").thresholds is True
    with pytest.raises(errors.ModelNotFound):
        registry.history("other")
    house.store.publish("m", DRAFT)
    assert house.rows()[-1] == (LATEST, "published", None, 5, "")


def test_refusals_are_told_and_move_nothing(house: House) -> None:
    verdict = {"promoted": False, "reasons": ["P@5 fell by 1.2"]}
    house.store.note_refusal("m", LATEST, 3, Cause("rule", "", "job-2", verdict))
    assert house.rows() == [*FIRST, (LATEST, "refused", 4, 3, "rule")]
    assert house.registry.promote("m", 3, LATEST, ALICE).old_alias.version == 4
    told = provenance(house.store, "m", 3)
    assert [row["action"] for row in told["promotions"]] == ["promoted", "refused", "published"]
    assert told["promotions"][1]["verdict"] == verdict


def exported(store: Store, version: int) -> bytes:
    file = io.BytesIO()
    store.export("m", version, file)
    return file.getvalue()


def test_provenance_tells_the_parent_under_any_name(quick: House) -> None:
    parent = quick.store.manifest("m", 4)
    origin = {
        "parent": parent_of(parent),
        "job": "job-3",
        "rule": [{"metric": "P@5", "least_change": -0.2}],
        "calibration": {"source": "valid.jsonl", "rows": 100},
    }
    quick.store.publish(
        "m", small_draft(1, extra={ORIGIN: json_array(ORIGIN, origin)}), latest=False
    )
    told = provenance(quick.store, "m", 5)
    assert {name: told[name] for name in origin} == origin
    assert told["parent"]["content"] == content_digest(parent)
    assert provenance(quick.store, "m", 4)["parent"] is None
    quick.store.import_(io.BytesIO(exported(quick.store, 5)), "other")
    other = provenance(quick.store, "other", LATEST)
    assert (other["content"], other["parent"]) == (told["content"], told["parent"])
    assert quick.store.alias("m").version == 4


def test_archives_are_published_by_who_brings_them(house: House) -> None:
    archive = exported(house.store, 4)
    for version, latest in ((5, True), (6, False)):
        found = house.registry.publish_archive("m", io.BytesIO(archive), ALICE, latest=latest)
        assert found.version == version
        assert house.rows()[4:] == [(LATEST, "published", 4, 5, "alice")]
        assert house.store.alias("m").version == 5


def test_a_database_that_does_not_answer_stops_no_move(tmp_path: Path) -> None:
    house = House(tmp_path, f"sqlite:///{tmp_path}/nowhere/xylem.db")
    bare = Registry(house.store, None)
    assert house.registry.promote("m", 2, "stable", ALICE).version == 2
    assert bare.rollback("m", LATEST, ALICE).version == 3
    assert bare.history("m") == house.registry.history("m")
    with pytest.raises(DatabaseUnavailable, match="m@1 is deleted, its thresholds are not"):
        house.registry.delete_version("m", 1, ALICE)
    house.database.close()
    bare.delete_alias("m", "stable", ALICE)
    assert bare.delete_version("m", 2, ALICE).thresholds is False
    assert bare.delete_model("m", ALICE, confirm="m").versions == (3, 4)
    assert bare.history("m")[0].action == "removed"


def test_a_store_that_follows_another_is_not_changed_here(quick: House) -> None:
    registry = Registry(quick.store, quick.database, follows="s3://models")
    before = quick.rows()
    for call in (
        lambda: registry.promote("m", 2, "stable", ALICE),
        lambda: registry.rollback("m", LATEST, ALICE),
        lambda: registry.delete_alias("m", LATEST, ALICE),
        lambda: registry.change("m", LATEST, "split", lambda alias: alias, ALICE),
        lambda: registry.delete_model("m", ALICE, confirm="m"),
    ):
        with pytest.raises(errors.Conflict, match="follows s3://models"):
            call()
    assert quick.rows() == before
