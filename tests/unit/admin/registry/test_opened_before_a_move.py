"""A version that cannot be opened, though its bytes are whole: no
alias moves to it, and all say why.
"""

import ast
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from tests.conftest import Run, serving, settings_of
from tests.golden.make_golden import DRAFTS
from tests.helpers.checkout import PACKAGES

from xylem.admin.registry.follower import RemoteFollower
from xylem.admin.registry.registry import Registry
from xylem.admin.registry.remote import RemoteStore
from xylem.serving.stores import store_of
from xylem_store.alias import promoted, with_canary, with_shadow
from xylem_store.errors import Corrupt
from xylem_store.moves import NOBODY, SPLIT, Cause
from xylem_store.store import Store
from xylem_store.version import Draft

KEY = "k" * 40
ROOT = Path(__file__).resolve().parents[4]
WORDS = "names/sequence_words"
COMBINED, TEXT = DRAFTS["combined-clean"], DRAFTS["text-clean"]


def without(draft: Draft, name: str) -> Draft:
    return replace(draft, extra={key: array for key, array in draft.extra.items() if key != name})


BAD = {
    "a parameter of a newer release": replace(TEXT, features={**TEXT.features, "newer": 1}),
    "a parameter less": replace(TEXT, features={"kind": "tfidf"}),
    "no idf": without(TEXT, "features/idf"),
    "no idf of a member": without(COMBINED, "member0/features/idf"),
    "no names": replace(
        COMBINED,
        extra={name: each for name, each in COMBINED.extra.items() if not name.startswith("names")},
    ),
    "other words of names": replace(
        COMBINED, extra={**COMBINED.extra, WORDS: COMBINED.extra[WORDS][::-1].copy()}
    ),
}
"""All of them hold the format's invariants; a plain Store, which has no check, publishes them."""


def good_and_bad(root: Path, bad: Draft) -> Store:
    """A store with version 1, and 2, which cannot be opened: `old`
    named it before, and no alias does now.
    """
    made = Store(root)
    made.publish("m", TEXT)
    made.publish("m", bad, latest=False)
    for version in (2, 1):
        made.promote("m", version, "old")
    return made


def archive_of(store: Store, path: Path) -> Path:
    with path.open("wb") as file:
        store.export("m", 2, file)
    return path


Way = Callable[[Registry, Store, Path], Any]


def imported(_: Registry, store: Store, archive: Path) -> None:
    with archive.open("rb") as file:
        store.import_(file, "m")


def first_import(_: Registry, store: Store, archive: Path) -> None:
    with archive.open("rb") as file:
        store.import_(file, "another")


WAYS: dict[str, Way] = {
    "import": imported,
    "import of a model's first": first_import,
    "verify": lambda _, store, __: store.verify("m", 2),
    "promote": lambda registry, _, __: registry.promote("m", 2, "latest", NOBODY),
    "promote a new alias": lambda registry, _, __: registry.promote("m", "2", "newer", NOBODY),
    "rollback": lambda registry, _, __: registry.rollback("m", "old", NOBODY),
    "canary": lambda registry, _, __: registry.change(
        "m", "latest", SPLIT, with_canary(2, 0.5), NOBODY
    ),
    "shadow": lambda registry, _, __: registry.change(
        "m", "latest", SPLIT, with_shadow(2, 0.5), NOBODY
    ),
}


def aliases(store: Store) -> Any:
    return [(info.name, info.versions, info.documents) for info in Store(store.root).models()]


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_no_way_leads_to_a_version_that_cannot_be_opened(
    tmp_path: Path, way: Way, bad: Draft
) -> None:
    plain = good_and_bad(tmp_path / "store", bad)
    archive = archive_of(plain, tmp_path / "m.tar")
    before = aliases(plain)
    checked = store_of(plain.root)
    with pytest.raises(Corrupt, match="expected"):
        way(Registry(checked, None), checked, archive)
    assert aliases(plain) == before


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_nothing_is_published_that_cannot_be_opened(tmp_path: Path, bad: Draft) -> None:
    store = store_of(tmp_path / "store")
    for latest in (True, False):
        with pytest.raises(Corrupt, match="expected"):
            store.publish("m", bad, latest=latest)
    assert store.models() == []


def test_commands_refuse_it_in_one_line(tmp_path: Path, run_here: Run) -> None:
    store = good_and_bad(tmp_path / "store", BAD["a parameter of a newer release"])
    archive, before = archive_of(store, tmp_path / "m.tar"), aliases(store)
    there = (tmp_path / "objects").as_uri()
    for line in (
        ("import", "--file", archive, "--model", "m"),
        ("promote", "m@2"),
        ("rollback", "m", "--alias", "old"),
        ("canary", "m@2", "--weight", "10%"),
        ("shadow", "m@2"),
        ("verify", "m@2"),
        ("push", "m@2", there, "--alias", "latest"),
    ):
        done = run_here("models", *line, store=store.root)
        assert done.returncode != 0 and "newer" in done.stderr and done.stderr.count("\n") == 1, (
            line
        )
    assert aliases(store) == before
    assert run_here("models", "verify", "m@1", store=store.root).returncode == 0


async def test_over_http_it_is_refused_and_the_old_one_serves(tmp_path: Path) -> None:
    store = good_and_bad(tmp_path / "store", BAD["no idf of a member"])
    archive, before = archive_of(store, tmp_path / "m.tar").read_bytes(), aliases(store)
    place = "/v1/admin/models/m"

    async with serving(settings_of(store.root, admin_key=SecretStr(KEY))) as (_, client):
        client.headers["authorization"] = f"Bearer {KEY}"
        for method, path, body in (
            ("POST", "promote", {"version": 2}),
            ("POST", "rollback", {"alias": "old"}),
            ("PUT", "aliases/latest/canary", {"version": 2, "weight": 0.1}),
            ("PUT", "aliases/latest/shadow", {"version": 2}),
            ("POST", "archive", archive),
        ):
            sent = {"content": body} if isinstance(body, bytes) else {"json": body}
            answer = await client.request(method, f"{place}/{path}", **sent)
            assert answer.json()["code"] in ("model-corrupt", "bad-data"), (path, answer.text)
            assert "idf" in answer.json()["detail"]
        answer = await client.post("/v1/models/m/predict", json={"instances": [{"text": "red"}]})
        assert answer.status_code == 200 and answer.json()["version"] == 1
        assert (await client.get("/readyz")).json()["status"] == "ready"
    assert aliases(store) == before


def test_a_replica_stays_where_it_is(tmp_path: Path) -> None:
    there = good_and_bad(tmp_path / "there", BAD["a parameter of a newer release"])
    remote = RemoteStore((tmp_path / "objects").as_uri())
    mine = store_of(tmp_path / "mine")
    follower = RemoteFollower(remote, mine, poll_seconds=1, keep=0)
    remote.change("m", {"latest": promoted(1)}, remote.push(there, "m", 1))
    assert follower.look() and mine.resolve("m") == 1
    remote.change("m", {"latest": promoted(2)}, remote.push(there, "m", 2))
    assert not follower.look() and mine.resolve("m") == 1


def test_counts_of_labels_may_be_missing(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store")
    for name, draft in {"text": TEXT, "both": COMBINED}.items():
        store.publish(name, without(draft, "labels/counts"))
        store.promote(name, 1, "stable", Cause("alice"))
        store.verify(name, 1)


def test_every_store_of_the_service_has_the_check() -> None:
    makers = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in PACKAGES[0].rglob("*.py")
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Store"
    ]
    assert len(makers) == 1 and makers[0].startswith("service/xylem/serving/stores.py"), json.dumps(
        makers
    )
