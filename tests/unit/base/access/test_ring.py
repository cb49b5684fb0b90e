"""KeyRing: who may, who may not, what holds while the database is gone, and what is open to all."""

import contextlib
import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from xylem.base import errors
from xylem.base.access import ring as ring_module
from xylem.base.access.key_text import (
    AccessScope,
    describe_access,
    is_loopback,
    open_scopes,
    parse_scopes,
)
from xylem.base.access.keys import AccessKeys
from xylem.base.access.ring import ANYBODY, ENVIRONMENT, KeyRing
from xylem.base.db.engine import Database
from xylem.base.settings import OPENABLE, Settings, read_settings
from xylem_store.errors import ModelNotFound

ADMIN_KEY = "an-admin-key-of-the-environment"


class Site:
    """A database with keys, and a ring over it for which it is `now`."""

    def __init__(self, database: Database, **settings: Any) -> None:
        self.keys = AccessKeys(database)
        self.now = time.time()
        self.shown: list[str] = []
        chosen = Settings(**{"host": "0.0.0.0", **settings})
        self.ring = KeyRing(database, chosen, self.shown.append, lambda: self.now, lambda: self.now)

    def key(self, *scopes: AccessScope, lifetime: float | None = None, **terms: Any) -> str:
        return self.keys.create("k", scopes, lifetime, **terms).text

    def answer(
        self,
        key: str | None,
        scope: AccessScope,
        model: str | None = None,
        *,
        filters: bool = False,
    ) -> str:
        """The code of a refusal, or the name of who asks."""
        try:
            header = None if key is None else f"Bearer {key}".encode()
            return self.ring.sender_of(header, scope, model, filters=filters).name
        except (errors.XylemError, ModelNotFound) as error:
            assert key is None or key not in f"{error} {error!r}"
            return error.code


@pytest.fixture
def site(database: Database) -> Site:
    return Site(database)


@contextlib.contextmanager
def site_in(directory: Path, **settings: Any) -> Iterator[Site]:
    """One over a file in a directory, which may come later."""
    with contextlib.closing(Database(f"sqlite:///{directory}/xylem.db")) as database:
        yield Site(database, **settings)


def test_every_scope_by_every_key(site: Site) -> None:
    keys = {frozenset({scope}): site.key(scope) for scope in AccessScope}
    keys[frozenset()] = "no such key"
    site.ring.refresh()
    for scopes, key in keys.items():
        for scope in AccessScope:
            may = scope in scopes or AccessScope.ADMIN in scopes
            expected = "k" if may else "scope-missing" if scopes else "unauthorized"
            assert site.answer(key, scope) == expected, (scopes, scope)
    assert [site.answer(None, scope) for scope in AccessScope] == ["unauthorized"] * 4


def test_what_is_wrong_with_a_key_is_told_only_to_who_has_it(site: Site) -> None:
    ended, other = site.key(AccessScope.PREDICT, lifetime=50), site.key(AccessScope.METRICS)
    made = site.keys.create("k", [AccessScope.PREDICT])
    revoked = made.text
    site.keys.revoke(made.key.id)
    site.ring.refresh()
    told = [site.answer(key, AccessScope.PREDICT) for key in (revoked, ended, other)]
    assert told == ["key-revoked", "k", "scope-missing"]
    site.now += 60
    site.ring.refresh()
    assert site.answer(ended, AccessScope.PREDICT) == "key-expired"
    for text in (revoked, ended, other):
        forged = text[:-1] + ("A" if text[-1] != "A" else "B")
        assert site.answer(forged, AccessScope.PREDICT) == "unauthorized"
    for kind, reason in (
        (errors.AccessRefused, ""),
        (errors.KeyRevoked, "invalid_token"),
        (errors.KeyExpired, "invalid_token"),
        (errors.ScopeMissing, "insufficient_scope"),
    ):
        challenge = kind.headers["www-authenticate"]
        assert challenge.startswith("Bearer") and reason in challenge


def test_the_scheme_is_read_in_any_case_and_bad_keys_are_refused(site: Site) -> None:
    key = site.key(AccessScope.PREDICT)
    site.ring.refresh()
    for scheme in ("Bearer", "bearer", "BEARER"):
        assert (
            site.ring.sender_of(f"{scheme}  {key} ".encode(), AccessScope.PREDICT, "m").name == "k"
        )
    for text in ("xk_", "xk_aaaaaaaaaaaa_", "é", "a b", "\x00" * 40):
        assert site.answer(text, AccessScope.ADMIN) == "unauthorized", text


def test_headers_of_another_form(site: Site) -> None:
    site.ring.refresh()
    long, letters = b"Bearer " + b"x" * 5000, b"\xff\xfe"
    for header in (b"", b"Bearer", b"Bearer ", b"Basic dXNlcjpwYXNz", b"bearer\t", long, letters):
        with pytest.raises(errors.AccessRefused, match="expected Authorization: Bearer"):
            pytest.fail(f"{header!r} is {site.ring.sender_of(header, AccessScope.PREDICT, 'm')}")


@pytest.mark.parametrize("form", ["plain", "sha256"])
def test_the_key_of_the_environment_needs_no_database(tmp_path: Path, form: str) -> None:
    hashed = f"sha256:{hashlib.sha256(ADMIN_KEY.encode()).hexdigest().upper()}"
    text = ADMIN_KEY if form == "plain" else hashed
    with site_in(tmp_path / "none", admin_key=SecretStr(text)) as site:
        for scope in AccessScope:
            assert (
                site.ring.sender_of(f"Bearer {ADMIN_KEY}".encode(), scope, "m").name
                == ENVIRONMENT.name
            )
        for other in ("another", hashed):
            assert site.answer(other, AccessScope.ADMIN) == "database-unavailable"
        with pytest.raises(errors.DatabaseUnavailable):
            site.ring.refresh()


def test_a_first_admin_key_is_shown_once_if_there_is_no_other(site: Site, tmp_path: Path) -> None:
    site.ring.refresh()
    site.ring.refresh()
    (text,) = site.shown
    assert site.answer(text, AccessScope.ADMIN) == "first admin key"
    (tmp_path / "other").mkdir()
    with site_in(tmp_path / "other", admin_key=SecretStr(ADMIN_KEY)) as other:
        other.ring.refresh()
        assert (other.shown, other.keys.list()) == ([], [])


def test_open_scopes_need_no_key_and_look_at_none(tmp_path: Path) -> None:
    with site_in(tmp_path, host="127.0.0.1") as site:
        for scope in set(AccessScope) - {AccessScope.ADMIN}:
            for header in (None, b"Basic x", b"Bearer nonsense"):
                assert site.ring.sender_of(header, scope, None).name == ANYBODY.name
        assert site.answer(None, AccessScope.ADMIN) == "unauthorized"


def test_a_key_of_some_models_sees_no_others(site: Site) -> None:
    some = site.key(AccessScope.PREDICT, models=("shop-*", "tags"))
    admin = site.key(AccessScope.ADMIN, models=("shop-[ab]",), data_prefix="shop/")
    site.ring.refresh()
    assert site.answer(some, AccessScope.PREDICT) == "scope-missing"
    assert site.answer(some, AccessScope.FEEDBACK, "tags") == "scope-missing"
    for model in ("shop-a", "shop-", "tags"):
        assert site.answer(some, AccessScope.PREDICT, model) == "k"
    strange = ("Shop-a", "shop-\n", "shop-" + "a" * 100_000, "", "../shop-a", "tags\0")
    for model in ("tag", "tagss", "ashop-a", *strange):
        assert site.answer(some, AccessScope.PREDICT, model) == "model-not-found", model
    for scope in set(AccessScope) - {AccessScope.METRICS}:
        assert site.answer(admin, scope, "shop-b") == "k"
        assert site.answer(admin, scope, "shop-c") == "model-not-found"
        assert site.answer(admin, scope, filters=True) == "k"
        assert site.answer(admin, scope) == "scope-missing"
    sender = site.ring.sender_of(f"Bearer {admin}".encode(), AccessScope.ADMIN, None, filters=True)
    assert (sender.sees("shop-a"), sender.sees("tags"), sender.data_prefix) == (
        True,
        False,
        "shop/",
    )


def test_scopes_are_open_for_the_open_models_alone(tmp_path: Path) -> None:
    with site_in(tmp_path, open_scopes=("predict", "metrics"), open_models=("demo-*",)) as site:
        key = site.key(AccessScope.PREDICT, models=("shop",))
        site.ring.refresh()
        assert site.answer(None, AccessScope.PREDICT, "demo-1") == "anybody"
        assert site.answer(None, AccessScope.PREDICT, "shop") == "unauthorized"
        assert site.answer(None, AccessScope.METRICS) == "unauthorized"
        assert site.answer(None, AccessScope.FEEDBACK, "demo-1") == "unauthorized"
        assert site.answer(key, AccessScope.PREDICT, "shop") == "k"
        assert site.answer(key, AccessScope.PREDICT, "demo-1") == "anybody"
        assert site.answer(key, AccessScope.PREDICT, "other") == "model-not-found"
        for text, seen in ((None, {"demo-1"}), (key, {"demo-1", "shop"})):
            header = None if text is None else f"Bearer {text}".encode()
            sender = site.ring.sender_of(header, AccessScope.PREDICT, None, filters=True)
            assert set(filter(sender.sees, ("demo-1", "shop", "other"))) == seen


def test_what_another_process_does_holds_after_a_refresh(site: Site, database_url: str) -> None:
    site.ring.refresh()
    with contextlib.closing(Database(database_url)) as database:
        other = AccessKeys(database)
        made = other.create("k", [AccessScope.PREDICT])
        assert site.answer(made.text, AccessScope.PREDICT) == "unauthorized"
        site.ring.refresh()
        assert site.answer(made.text, AccessScope.PREDICT) == "k"
        other.revoke(made.key.id)
        assert site.answer(made.text, AccessScope.PREDICT) == "k"
        site.ring.refresh()
        assert site.answer(made.text, AccessScope.PREDICT) == "key-revoked"


def test_keys_are_honoured_for_a_while_without_the_database(site: Site) -> None:
    key = site.key(AccessScope.PREDICT)
    assert site.answer(key, AccessScope.PREDICT) == "database-unavailable"  # before the first read
    site.ring.refresh()
    site.now += ring_module.STALE_SECONDS - 1
    assert site.answer("xk_nobody", AccessScope.PREDICT) == "unauthorized"
    site.now += 2
    assert site.answer("xk_nobody", AccessScope.PREDICT) == "database-unavailable"
    assert site.answer(None, AccessScope.PREDICT) == "unauthorized"
    site.now += ring_module.HONOUR_SECONDS - ring_module.STALE_SECONDS - 2
    assert site.answer(key, AccessScope.PREDICT) == "k"
    site.now += 2
    assert site.answer(key, AccessScope.PREDICT) == "database-unavailable"
    site.ring.refresh()
    assert site.answer(key, AccessScope.PREDICT) == "k"


def test_the_last_use_is_written_at_the_end_and_not_at_each(site: Site) -> None:
    key = site.key(AccessScope.PREDICT)
    site.ring.start()
    while not site.ring._keys:
        pass
    for _ in range(100):
        site.ring.sender_of(f"Bearer {key}".encode(), AccessScope.PREDICT, "m")
    assert {one.last_used_at for one in site.keys.list()} == {None}
    site.ring.close()
    used = {one.name: one.last_used_at for one in site.keys.list()}
    assert used["k"] == pytest.approx(site.now)
    assert used.get("first admin key") is None


def test_faults_of_the_database_are_logged_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "later"
    with site_in(place) as site:
        for _ in range(3):
            site.ring._following._call()
        place.mkdir()
        for _ in range(3):
            site.ring._following._call()
    logged = capfd.readouterr().err
    assert logged.count('"follower_failed"') == logged.count('"follower_works_again"') == 1
    assert site.shown
    assert site.shown[0] not in logged


def test_nothing_ends_the_thread_that_reads_keys(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(_: str) -> None:
        raise ValueError("I/O operation on closed file, and what must not be told")

    with site_in(tmp_path) as site:
        site.ring._on_first_key = fail
        site.ring._following._call()
        site.ring._following._call()
        logged = capfd.readouterr().err
        assert "ValueError" in logged
        assert "must not be told" not in logged
        assert [key.name for key in site.keys.list()] == ["first admin key"]
        assert site.answer("xk_nobody", AccessScope.PREDICT) == "unauthorized"


NAMES = ["predict", "feedback", "metrics"]
OWN = ["127.0.0.1", "127.3.2.1", "::1", "localhost", "LOCALHOST"]
OTHERS = ["0.0.0.0", "::", "", "10.0.0.1", "localhost.example.org", "127.0.0.1.example.org"]


@pytest.mark.parametrize("host", OWN + OTHERS)
def test_what_is_open_follows_the_address(host: str) -> None:
    is_own = host in OWN
    assert is_loopback(host) == is_own
    settings = Settings(host=host)
    assert open_scopes(settings) == (set(NAMES) if is_own else set())
    facts = describe_access(settings)
    assert sorted(facts["open"] + facts["keys"]) == sorted(AccessScope)
    assert host in facts["because"]


def test_a_setting_wins_over_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    two, every = ("metrics, predict", {"predict", "metrics"}), (",".join(NAMES), set(NAMES))
    for text, scopes in (("none", set()), ("predict", {"predict"}), two, every):
        monkeypatch.setenv("XYLEM_OPEN_SCOPES", text)
        for host in ("127.0.0.1", "0.0.0.0"):
            settings = read_settings(host=host)
            assert open_scopes(settings) == scopes
            assert describe_access(settings)["because"] == "XYLEM_OPEN_SCOPES"


@pytest.mark.parametrize(
    "text", ["admin", "predict,admin", "all", "*", "none,predict", "predict;metrics", ","]
)
def test_admin_is_never_open_and_misspelt_scopes_are_refused(monkeypatch: Any, text: str) -> None:
    monkeypatch.setenv("XYLEM_OPEN_SCOPES", text)
    with pytest.raises(
        errors.BadParameter, match=r"XYLEM_OPEN_SCOPES: .*expected none, or some of predict"
    ):
        read_settings()


def test_names_of_scopes() -> None:
    assert set(OPENABLE) | {"admin"} == set(AccessScope)
    assert parse_scopes(["admin", "predict", "admin"]) == {"admin", "predict"}
    for bad in ([], ["Admin"], ["predict", ""]):
        with pytest.raises(errors.BadParameter, match="scopes: expected some of predict"):
            parse_scopes(bad)
