"""R9: whatever a name, a path or a URL says, nothing outside the store is read, changed or made.

Beside the store lies another one with models that the store does not have, so that a path that got
out would find what it looks for.
"""

import asyncio
import contextlib
import io
import json
import os
import random
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tests.conftest import scope_of, serving, settings_of
from tests.helpers.small_models import small_draft

from xylem_store.errors import BadNames, StoreError
from xylem_store.names import build_names, check_names, find_name, name_of
from xylem_store.store import Store

names = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)


@given(st.lists(names, unique=True, max_size=60), st.lists(names, max_size=10))
def test_a_table_is_a_dict(present: list[str], others: list[str]) -> None:
    table = check_names(*build_names(present))
    oracle = {name: i for i, name in enumerate(present)}
    assert [name_of(table, i) for i in range(table.n_names)] == present
    for name in present + others:
        assert find_name(table, name) == oracle.get(name, -1)


@given(st.text(min_size=1, max_size=5))
def test_what_is_refused_is_what_python_says(name: str) -> None:
    is_bad = any(unicodedata.category(c) in ("Cc", "Cs") for c in name)
    with pytest.raises(BadNames) if is_bad else contextlib.nullcontext():
        build_names([name])


@given(st.binary(min_size=1, max_size=12))
def test_utf8_is_what_python_says(data: bytes) -> None:
    fault = ""
    try:
        check_names(
            np.array([0, len(data)]), np.frombuffer(data, np.uint8), build_names(["a"]).slots
        )
    except BadNames as error:
        fault = str(error)
    try:
        data.decode()
        assert "UTF-8" not in fault
    except UnicodeDecodeError:
        # a control character may stand before the bytes that are not UTF-8
        assert "UTF-8" in fault or "control" in fault


OUTSIDE_LABELS = 7
FEATURES: dict[str, Any] = {"kind": "raw", "norm": "l2"}
DRAFT = small_draft(0, n_labels=3, n_features=40, n_trees=1, features=FEATURES)
PARTS = [
    *("..", ".", "/", "//", "\\", "~", ":", "-", "*", "$HOME", "．．", "／"),
    *("\x00", "\n", "\r\n", " ", "\ud800", "é"),
    *("%2e%2e", "%2F", "%00", "%252e%252e%252f", "file://", "C:", "@", "#", "?", "{model}"),
    *("raw", "other", "store", "models", "versions", "aliases", "staging", "lock", "latest"),
    *("1", "2", "0", "secret"),
]


class Places:
    """A store in a directory with another store and a file beside it."""

    def __init__(self, directory: Path) -> None:
        self.outer = directory / "outer"
        self.root = self.outer / "store"
        self.outer.mkdir()
        Store(self.root).publish("raw", DRAFT)
        for name in ("raw", "secret"):
            draft = small_draft(
                1, n_labels=OUTSIDE_LABELS, n_features=40, n_trees=1, features=FEATURES
            )
            Store(self.outer / "other").publish(name, draft)
        (self.outer / "secret").write_text("secret")
        self.before = self.outside()

    def outside(self) -> dict[str, tuple[int, int, int]]:
        """Everything outside the store: its inode, size and time of change."""
        found = {}
        for place, directories, files in os.walk(self.outer):
            if Path(place) == self.outer:
                directories.remove("store")
            for path in (Path(place, name) for name in (*directories, *files)):
                seen = path.lstat()
                found[str(path)] = (seen.st_ino, seen.st_size, seen.st_mtime_ns)
        return found

    def ways_out(self) -> list[str]:
        """Names that would lead to the other store if they became parts of paths."""
        other = f"{self.outer}/other/models/raw"
        return [
            *(
                "../../other/models/raw",
                "raw/../../../other/models/raw",
                other,
                f"//{other}",
                "../raw/.",
            ),
            *(
                "../../../../other/models/raw/versions/1",
                "../../../other/models/raw/aliases/latest",
            ),
            *("..", ".", "../..", "../../secret", "/etc/passwd"),
        ]

    def hostile(self, rng: random.Random) -> str:
        if rng.random() < 0.3:
            return rng.choice(self.ways_out())
        return "".join(rng.choices(PARTS, k=rng.randint(1, 6)))


def operations(store: Store, name: Any, other: Any) -> list[Callable[[], Any]]:
    return [
        lambda: store.open(name),
        lambda: store.open("raw", name),
        lambda: store.open(name, other),
        lambda: store.versions(name),
        lambda: store.alias("raw", name),
        lambda: store.resolve(name, other),
        lambda: store.manifest(name, 1),
        lambda: store.manifest("raw", name),
        lambda: store.verify(name, 1),
        lambda: store.export(name, 1, io.BytesIO()),
        lambda: store.export("raw", name, io.BytesIO()),
        lambda: store.publish(name, DRAFT),
        lambda: store.promote("raw", 1, name),
        lambda: store.promote(name, 1, other),
        lambda: store.rollback(name, other),
        lambda: store.delete(name, 1),
        lambda: store.delete("raw", name),
    ]


ROUNDS = pytest.mark.parametrize(
    "rounds", [150, pytest.param(30_000, marks=pytest.mark.soak)], ids=["quick", "soak"]
)


@ROUNDS
def test_no_name_leads_out_of_the_store(rounds: int, tmp_path: Path, seed: int) -> None:
    rng, places = random.Random(seed), Places(tmp_path)
    store = Store(places.root)
    refused = 0
    for _ in range(rounds):
        name, other = (places.hostile(rng) for _ in range(2))
        for number, operation in enumerate(operations(store, name, other)):
            try:
                found = operation()
            except StoreError:
                refused += 1
                continue
            manifest = getattr(found, "manifest", found)
            assert getattr(manifest, "n_labels", 0) != OUTSIDE_LABELS, (seed, number, name, other)
    assert places.outside() == places.before, seed
    assert refused > 15 * rounds


async def ask(app: Any, method: str, path: str, raw_path: bytes, body: bytes) -> tuple[int, bytes]:
    """Call the app as a server would that has not looked at the path."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = {"content-type": "application/json", "content-length": str(len(body))}
    await app(scope_of(method, path, headers, raw_path), receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


@ROUNDS
def test_no_url_leads_out_of_the_store(rounds: int, tmp_path: Path, seed: int) -> None:
    rng, places = random.Random(seed), Places(tmp_path)
    body = json.dumps({"instances": [{"indices": [1], "values": [1.0]}]}).encode()

    async def main() -> int:
        n_refused = 0
        async with serving(settings_of(places.root)) as (app, _):
            routes = [
                (path, name.upper()) for path, of in app.openapi()["paths"].items() for name in of
            ]
            for _ in range(rounds):
                path, method = rng.choice(routes)
                names = [places.hostile(rng) for _ in range(path.count("{"))]
                for name in names:
                    path = re.sub(r"{\w+}", lambda _, name=name: name, path, count=1)  # type: ignore[misc]
                path = path.encode("utf-8", "replace").decode()  # as a server's unquote does
                status, answer = await ask(app, method, path, quote(path).encode(), body)
                assert status < 500, (seed, method, path, status, answer)
                if names and status < 400:
                    assert all(name in ("raw", "1", "latest") for name in names), (
                        seed,
                        method,
                        path,
                    )
                assert b'"n_labels":%d' % OUTSIDE_LABELS not in answer, (seed, method, path)
                n_refused += status >= 400
        return n_refused

    assert asyncio.run(main()) > rounds // 4  # about half, and sure with any seed
    assert places.outside() == places.before, seed
