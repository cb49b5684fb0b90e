"""The admin key: who brings it may come in, and nobody where none is set."""

from __future__ import annotations

import hashlib

import pytest
from pydantic import SecretStr

from service.api.door.auth import AdminKey
from service.api.door.problems import Unauthorized

KEY = "open sésame"
HASH = "sha256:" + hashlib.sha256(KEY.encode()).hexdigest()


def scope(*values: bytes) -> dict[str, object]:
    return {"headers": [(b"host", b"x"), *((b"authorization", value) for value in values)]}


@pytest.mark.parametrize("configured", [KEY, HASH, HASH.upper().replace("SHA256", "sha256")])
@pytest.mark.parametrize("given", [b"Bearer %s", b"bearer %s", b"BEARER   %s  "])
def test_the_key_opens_as_itself_or_as_its_hash(configured: str, given: bytes) -> None:
    AdminKey(SecretStr(configured)).check(scope(given % KEY.encode()))


@pytest.mark.parametrize("configured", [None, "", KEY, HASH])
@pytest.mark.parametrize(
    "given",
    [
        (),
        (b"",),
        (b"Bearer",),
        (b"Bearer ",),
        (b"Bearer wrong",),
        (b"Bearer \xff",),
        (KEY.encode(),),
        (b"Basic " + KEY.encode(),),
        (b"Bearer " + HASH.encode(),),
        (b"Bearer " + KEY.encode() + b"x",),
        (b"Bearer " + KEY.encode(), b"Bearer wrong"),
    ],
    ids=ascii,
)
def test_nothing_else_does(configured: str | None, given: tuple[bytes, ...]) -> None:
    key = AdminKey(None if configured is None else SecretStr(configured))
    with pytest.raises(Unauthorized) as refused:
        key.check(scope(*given))
    assert KEY not in str(refused.value)


@pytest.mark.parametrize("configured", [None, ""])
def test_no_key_is_not_the_empty_key(configured: str | None) -> None:
    key = AdminKey(None if configured is None else SecretStr(configured))
    for given in (b"Bearer ", b"Bearer " + KEY.encode()):
        with pytest.raises(Unauthorized):
            key.check(scope(given))
