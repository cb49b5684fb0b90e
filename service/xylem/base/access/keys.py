"""The keys of the service in the database: they are made, listed, revoked and rotated."""

import datetime
import fnmatch
import re
import sys
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, delete, insert, select, update

from xylem.base.access.key_text import (
    ID_PLACE,
    AccessScope,
    digest_of,
    is_id,
    make_secret,
    parse_scopes,
    without_secrets,
)
from xylem.base.access.meters import KeyLimits
from xylem.base.access.patterns import check_patterns
from xylem.base.db.engine import Database
from xylem.base.db.tables import ACCESS_KEYS
from xylem.base.errors import BadParameter, KeyNotFound, LimitExceeded
from xylem_store import is_model

# The maximum number of keys in a database.
#
# If it is reached, a new key replaces the oldest key that is not in force, but never the newest
# admin key.
KEYS_MAX = 1000

# The name of the key that is made where there never was one, so that no service is locked.
FIRST_KEY_NAME = "first admin key"

NO_ROWS_MAX = 100  # most models in `no_rows` of a key
ALL_MODELS = "*"
LIFETIME_SECONDS_MAX = 100 * 366 * 86_400
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@:/-]{0,63}", re.ASCII)
_DATA_PREFIX = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9._/-]{0,255}", re.ASCII)

# The prefix of the scopes of keys with patterns, in the database.
#
# An older release does not know such scopes, and refuses these keys. It does not read the
# patterns, so it would let them see all models.
OF_MODELS = "models/"

# The fields of a key that it has from its beginning, and that the next key of its name has, too,
# besides its scopes.
TERMS = ("no_rows", "models", "data_prefix", *KeyLimits._fields)


class AccessKey(NamedTuple):
    """A key as the database has it. Times are in seconds since 1970, None for never.

    hash     32 bytes, SHA-256 of the key's text
    last_used_at  the last use, to the minute
    no_rows  models for which feedback with this key stores no rows; `*` for all
    models   patterns of the models that it may see; None: all, and what concerns no model
    data_prefix  with patterns: how names of data files begin that it may use; None: it may use none

    The last fields are those of KeyLimits.
    """

    id: str
    name: str
    scopes: frozenset[AccessScope]
    hash: bytes
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    last_used_at: float | None
    no_rows: tuple[str, ...] = ()
    models: tuple[str, ...] | None = None
    data_prefix: str | None = None
    requests_per_second: float | None = None
    rows_per_second: float | None = None
    in_flight: int | None = None

    @property
    def limits(self) -> KeyLimits:
        """Return the limits of the key, those of the settings apart."""
        return KeyLimits(*(getattr(self, name) for name in KeyLimits._fields))

    def __repr__(self) -> str:
        """Return the id and name of the key, without its hash."""
        return f"AccessKey({self.id}, {self.name!r})"

    def state(self, now: float) -> str:
        """Return `active`, `revoked` or `expired`."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "active"

    def facts(self, now: float | None = None) -> dict[str, Any]:
        """Return the key as a JSON object, without its hash; times as RFC 3339, null for never."""
        return {
            "id": self.id,
            "name": self.name,
            "scopes": [scope.value for scope in AccessScope if scope in self.scopes],
            "state": self.state(time.time() if now is None else now),
            "created": moment(self.created_at),
            "expires": moment(self.expires_at),
            "revoked": moment(self.revoked_at),
            "last_used": moment(self.last_used_at),
            "no_rows": list(self.no_rows),
            "models": self.models and list(self.models),
            "data_prefix": self.data_prefix,
            **self.limits._asdict(),
        }


class KeyWithText(NamedTuple):
    """A new key and its text, which cannot be recovered later.

    namesakes  the ids of the other keys in force that have its name
    """

    key: AccessKey
    text: str
    namesakes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return the id of the key, without its secret."""
        return f"KeyWithText({self.key.id})"

    def facts(self, models: Iterable[str]) -> dict[str, Any]:
        """Return the key as a JSON object with its text as `key`, and warnings on its terms.

        Only for the answer that shows the key, never for a log.

        models  those of the store
        """
        names = list(models)
        warnings = [
            f"models: {pattern} matches no model of the store now"
            for pattern in self.key.models or ()
            if not fnmatch.filter(names, pattern)
        ]
        if self.namesakes:
            warnings.append(
                f"name: {self.key.name} is also the name of {', '.join(self.namesakes)}: "
                "ids tell them apart"
            )
        return {**self.key.facts(), "key": self.text, "warnings": warnings}


class AccessKeys:
    """The keys of a database.

    Thread-safe; every call is one transaction, and raises DatabaseUnavailable. A change takes
    effect in this process and in every other one within two seconds: see `ring`.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(
        self,
        name: str,
        scopes: Iterable[str],
        lifetime_seconds: float | None = None,
        **terms: Any,
    ) -> KeyWithText:
        """Make a key, in force from now on, for ever or for a lifetime. Names need not be unique.

        terms  those of TERMS that the key has, as in AccessKey; lists will do, and None for no rows

        Raises BadParameter, and LimitExceeded if KEYS_MAX keys are in force.
        """
        values = {
            term: tuple(value) if isinstance(value, list) else value
            for term, value in terms.items()
            if value is not None
        }
        with self._database.write() as connection:
            return add_key(connection, name, parse_scopes(list(scopes)), lifetime_seconds, **values)

    def list(self) -> list[AccessKey]:
        """Return all keys, the newest first, with those that are no longer in force."""
        with self._database.read() as connection:
            return all_keys(connection)

    def revoke(self, key_id: str) -> AccessKey:
        """Revoke a key for good, and return it; a key that was revoked already stays as it is.

        Raises KeyNotFound.
        """
        with self._database.write() as connection:
            key = find_key(connection, key_id)
            if key.revoked_at is not None:
                return key
            now = time.time()
            connection.execute(_the_key(key_id).values(revoked_at=now))
            return key._replace(revoked_at=now)

    def rotate(
        self, key_id: str, overlap_seconds: float = 0.0, lifetime_seconds: float | None = None
    ) -> KeyWithText:
        """Make a new key of the same name, scopes and terms; the old one expires after the overlap.

        An overlap never lengthens the life of the old key. If no lifetime is given, the new key has
        the lifetime of the old one. Raises KeyNotFound for a key that is not in force, BadParameter
        and LimitExceeded.
        """
        if not 0 <= overlap_seconds <= LIFETIME_SECONDS_MAX:
            raise BadParameter(f"overlap: expected seconds from 0, found {overlap_seconds:g}")
        with self._database.write() as connection:
            key = find_key(connection, key_id)
            now = time.time()
            if key.state(now) != "active":
                raise KeyNotFound(f"key {key.id}: expected one in force, found {key.state(now)}")
            if lifetime_seconds is None and key.expires_at is not None:
                lifetime_seconds = key.expires_at - key.created_at
            new_key = add_key(
                connection,
                key.name,
                key.scopes,
                lifetime_seconds,
                **{term: getattr(key, term) for term in TERMS},
            )
            connection.execute(
                _the_key(key.id).values(
                    expires_at=min(now + overlap_seconds, key.expires_at or float("inf"))
                )
            )
            return new_key._replace(namesakes=())  # the old key has its name on purpose


def add_key(
    connection: Connection,
    name: str,
    scopes: frozenset[AccessScope],
    lifetime_seconds: float | None,
    **terms: Any,
) -> KeyWithText:
    """Make a key in the caller's transaction; see `AccessKeys.create`."""
    if not _NAME.fullmatch(name):
        raise BadParameter(
            f"name: expected 1 to 64 of letters, digits, blank and ._@:/-, found {name!r:.100}"
        )
    if lifetime_seconds is not None and not 0 < lifetime_seconds <= LIFETIME_SECONDS_MAX:
        raise BadParameter(f"lifetime: expected seconds above 0, found {lifetime_seconds:g}")
    now = time.time()
    keys = all_keys(connection)
    if len(keys) >= KEYS_MAX:
        newest_admin = next((key.id for key in keys if _is_whole_admin(key)), None)
        removable_ids = [
            key.id for key in keys if key.state(now) != "active" and key.id != newest_admin
        ]
        if not removable_ids:
            raise LimitExceeded(
                f"keys: expected at most {KEYS_MAX}, found as many in force: revoke one"
            )
        connection.execute(delete(ACCESS_KEYS).where(ACCESS_KEYS.c.id == removable_ids[-1]))
    text = make_secret()
    key = AccessKey(
        id=text[ID_PLACE],
        name=name,
        scopes=scopes,
        hash=digest_of(text),
        created_at=now,
        expires_at=None if lifetime_seconds is None else now + lifetime_seconds,
        revoked_at=None,
        last_used_at=None,
        **terms,
    )
    _check_terms(key)
    prefix = "" if key.models is None else OF_MODELS
    connection.execute(
        insert(ACCESS_KEYS).values(
            key._asdict()
            | {
                "scopes": " ".join(sorted(prefix + scope for scope in scopes)),
                "no_rows": " ".join(key.no_rows) or None,
                "models": key.models and " ".join(key.models),
            }
        )
    )
    return KeyWithText(
        key,
        text,
        tuple(other.id for other in keys if other.name == name and other.state(now) == "active"),
    )


def _check_terms(key: AccessKey) -> None:
    """Raise BadParameter for terms of a key that are not valid, or do not go together."""
    key.limits.check()
    if len(key.no_rows) > NO_ROWS_MAX or not all(
        model == ALL_MODELS or is_model(model) for model in key.no_rows
    ):
        raise BadParameter(
            f"no_rows: expected at most {NO_ROWS_MAX} names of models, or {ALL_MODELS}, "
            f"found {', '.join(key.no_rows)!r:.100}"
        )
    if key.models is not None:
        check_patterns(key.models)
        if AccessScope.METRICS in key.scopes:
            raise BadParameter(
                "models: expected scopes of single models, found metrics: /metrics shows all models"
            )
    if key.data_prefix is not None:
        if key.models is None or AccessScope.ADMIN not in key.scopes:
            raise BadParameter(
                "data_prefix: expected a key with the scope admin and with models, found another"
            )
        if not _DATA_PREFIX.fullmatch(key.data_prefix):
            raise BadParameter(
                "data_prefix: expected how names of data files begin, as shop/, found "
                f"{key.data_prefix!r:.100}"
            )


def all_keys(connection: Connection) -> list[AccessKey]:
    """Return all keys, the newest first."""
    return [
        _key_of(row)
        for row in connection.execute(
            select(ACCESS_KEYS).order_by(ACCESS_KEYS.c.created_at.desc(), ACCESS_KEYS.c.id)
        )
    ]


def find_key(connection: Connection, key_id: str) -> AccessKey:
    """Return a key, and lock its row if the database can lock rows. Raises KeyNotFound."""
    query = select(ACCESS_KEYS).where(ACCESS_KEYS.c.id == key_id).with_for_update()
    row = connection.execute(query).one_or_none() if is_id(key_id) else None
    if row is None:
        raise KeyNotFound(f"expected the id of a key, found {without_secrets(key_id)!r:.40}")
    return _key_of(row)


def ensure_admin_key(database: Database) -> str | None:
    """Make an admin key if the database never had one, and return its text; else return None.

    If several processes start at once, one of them makes it. A revoked admin key is not replaced:
    to make another one, run `xylem keys create --scope admin` on the machine. Raises
    DatabaseUnavailable.
    """
    with database.read() as connection:  # first without a lock: usually there is one
        if _has_admin_key(connection):
            return None
    with database.write() as connection:
        if connection.dialect.name == "postgresql":  # SQLite has only one writer at a time anyway
            connection.exec_driver_sql(f"LOCK TABLE {ACCESS_KEYS.name} IN SHARE ROW EXCLUSIVE MODE")
        return (
            None
            if _has_admin_key(connection)
            else add_key(connection, FIRST_KEY_NAME, frozenset({AccessScope.ADMIN}), None).text
        )


def _has_admin_key(connection: Connection) -> bool:
    return any(map(_is_whole_admin, all_keys(connection)))


def _is_whole_admin(key: AccessKey) -> bool:
    return AccessScope.ADMIN in key.scopes and key.models is None


def show_admin_key(text: str) -> None:
    """Write the text of a new admin key to standard error, for a person; it is never logged."""
    sys.stderr.write(
        f"xylem: no admin key was there, so one was made. It is shown this once: {text}\n"
    )
    sys.stderr.flush()


def note_uses(connection: Connection, ids: Iterable[str], now: float) -> None:
    """Write the time at which keys were last used."""
    connection.execute(
        update(ACCESS_KEYS).where(ACCESS_KEYS.c.id.in_(list(ids))).values(last_used_at=now)
    )


def moment(seconds: float | None) -> str | None:
    """Return a time as RFC 3339, to the second, in UTC; None for None."""
    return (
        None
        if seconds is None
        else datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    )


def _the_key(key_id: str) -> Any:
    return update(ACCESS_KEYS).where(ACCESS_KEYS.c.id == key_id)


def _key_of(row: Row[Any]) -> AccessKey:
    """Return the key in a row; scopes that only a newer release knows are left out."""
    return AccessKey(
        **{
            **row._mapping,
            "scopes": frozenset(
                AccessScope(name)
                for name in row.scopes.replace(OF_MODELS, "").split()
                if name in set(AccessScope)
            ),
            "hash": bytes(row.hash),
            "no_rows": tuple((row.no_rows or "").split()),
            "models": None if row.models is None else tuple(row.models.split()),
        }
    )
