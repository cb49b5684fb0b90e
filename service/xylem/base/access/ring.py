"""KeyRing: decides about the key of each request. All keys are in memory, read again each second.

A request costs a hash and a look-up in memory. A key that this process or another one makes or
revokes is accepted or refused here after REFRESH_SECONDS and the time of one read, at the latest.

While the database cannot be read, known keys stay valid for HONOUR_SECONDS after the last read, so
that a database that restarts stops nobody. An unknown key is then refused with 503 and not 401,
because it may have been made meanwhile. After that time every key is refused, except that of
`XYLEM_ADMIN_KEY`, which needs no database.
"""

import hashlib
import hmac
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from xylem.base.access.key_text import ID_PLACE, AccessScope, digest_of, id_of, open_scopes
from xylem.base.access.keys import (
    ALL_MODELS,
    AccessKey,
    all_keys,
    ensure_admin_key,
    note_uses,
    show_admin_key,
)
from xylem.base.access.meters import KeyLimits, KeyMeter, Senders
from xylem.base.access.patterns import ModelPatterns
from xylem.base.access.usage import KeyUsage
from xylem.base.db.engine import Database
from xylem.base.errors import (
    AccessRefused,
    DatabaseUnavailable,
    KeyExpired,
    KeyRevoked,
    ScopeMissing,
    XylemError,
)
from xylem.base.repeating import Repeating
from xylem.base.settings import KEY_BYTES_MAX, Settings
from xylem_store import ModelNotFound

REFRESH_SECONDS = 1.0  # between two reads of the keys
# If the last read is longer ago than this, an unknown key is refused with 503.
STALE_SECONDS = 5.0

HONOUR_SECONDS = 300.0  # known keys stay valid for this time after the last read

USE_SECONDS = 60.0  # between two writes of the times at which keys were last used
_HASHED = "sha256:"


class Principal(NamedTuple):
    """The sender of a request: the id and name of its key, and what the key may see.

    models       None: all models
    data_prefix  how names of data files begin that it may use; None: it may use none
    meter        what it sends to this process, and its limits
    """

    key_id: str
    name: str
    models: ModelPatterns | None = None
    data_prefix: str | None = ""
    meter: KeyMeter = KeyMeter()

    def sees(self, model: str) -> bool:
        """Return whether a model exists for this sender, if it exists."""
        return self.models is None or model in self.models


ANYBODY = Principal("", "anybody")  # the sender of a request for an open scope

# The sender of a request with the key of the settings.
ENVIRONMENT = Principal("environment", "XYLEM_ADMIN_KEY")


class _Holder(NamedTuple):
    key: AccessKey
    principal: Principal


class KeyRing:
    """Decides whether a key opens a scope. `check` is for any thread and never blocks.

    `start` begins to follow the database; the first admin key is made if there is none.

    usage  what the keys send, which is written while the ring follows the database
    """

    def __init__(
        self,
        database: Database,
        settings: Settings,
        on_first_key: Callable[[str], None] | None = show_admin_key,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the database of the keys; until `start` reads it, every key is refused with 503.

        on_first_key  called with the text of the admin key that is made if there is none; None: no
                      key is made
        clock         seconds since 1970, for keys that expire
        ticks         seconds of a steady clock, for the time since the last read
        """
        self._open = open_scopes(settings)
        self._senders = Senders()
        self._limits = KeyLimits(
            settings.key_requests_per_second, settings.key_rows_per_second, settings.key_in_flight
        )
        self.anybody = ANYBODY._replace(
            models=None if settings.open_models is None else ModelPatterns(settings.open_models),
            meter=KeyMeter(senders=self._senders),
        )
        self._environment = ENVIRONMENT._replace(meter=KeyMeter(senders=self._senders))
        self._database = database
        key = "" if settings.admin_key is None else settings.admin_key.get_secret_value()
        self._admin_digest = digest_of(key) if key else None
        if key.startswith(_HASHED):
            self._admin_digest = bytes.fromhex(key.removeprefix(_HASHED))
        self._on_first_key = on_first_key
        self._clock = clock
        self._ticks = ticks
        self._keys: dict[bytes, _Holder] = {}
        self._read_at = float("-inf")
        self._used: set[str] = set()
        self._wrote_uses_at = ticks()
        self._is_first = settings.admin_key is None
        self._refreshing = threading.Lock()
        self._following = Repeating("access-keys", self._look, REFRESH_SECONDS, at_once=True)
        self.usage = KeyUsage(database)

    def start(self) -> None:
        """Begin to follow the database, and to write the usage of keys."""
        self._following.start()
        self.usage.start()

    def is_open(self, scope: AccessScope, model: str | None) -> bool:
        """Return whether a scope needs no key for a model. The header is then not looked at.

        None stands for what concerns no single model.
        """
        models = self.anybody.models
        return scope in self._open and (models is None or (model is not None and model in models))

    def check(
        self, authorization: bytes | None, scope: AccessScope, model: str | None
    ) -> Principal:
        """Return `sender_of` a request that the limits of its key admit now.

        The caller charges the request. Raises what `sender_of` raises, and TooManyRequests.
        """
        sender = self.sender_of(authorization, scope, model)
        if self._ticks() < sender.meter.open_at:
            raise sender.meter.refusal()
        return sender

    def sender_of(
        self,
        authorization: bytes | None,
        scope: AccessScope,
        model: str | None,
        *,
        filters: bool = False,
    ) -> Principal:
        """Return the sender of a request whose key opens a scope for a model.

        authorization  the header Authorization, `Bearer KEY`; None if the request has none
        model          the model that the request is for, which need not exist; None: the request
                       concerns no single model, and only keys for all models open it
        filters        with None: whether the caller shows and changes only what the sender sees;
                       then keys for some models open it, too

        A key with the scope `admin` opens every scope, since it could make a key for each. A key
        with patterns opens what they match; for it there are no other models.

        Raises AccessRefused (no key, or an unknown one), KeyRevoked, KeyExpired, ScopeMissing,
        ModelNotFound, and DatabaseUnavailable if this cannot be decided now.
        """
        is_anybody = filters and authorization is None
        if scope in self._open and (is_anybody or self.is_open(scope, model)):
            return self.anybody
        text = _bearer(authorization)
        digest = hashlib.sha256(text).digest()
        if self._admin_digest is not None and hmac.compare_digest(digest, self._admin_digest):
            return self._environment
        age = self._ticks() - self._read_at
        holder = self._keys.get(text[ID_PLACE])
        if holder is None or not hmac.compare_digest(digest, holder.key.hash):
            if age > STALE_SECONDS:
                raise DatabaseUnavailable(
                    "expected to look up the key in the database, found that it does not answer"
                )
            raise AccessRefused("expected a key of this service, found one that is unknown")
        if age > HONOUR_SECONDS:
            raise DatabaseUnavailable(
                "expected to check the key in the database, found that it does not answer"
            )
        key, principal = holder
        if key.revoked_at is not None:
            raise KeyRevoked(f"key {key.id}: expected one in force, found that it was revoked")
        if key.expires_at is not None and key.expires_at <= self._clock():
            raise KeyExpired(f"key {key.id}: expected one in force, found that it has expired")
        if scope not in key.scopes and AccessScope.ADMIN not in key.scopes:
            raise ScopeMissing(
                f"key {key.id}: expected one with the scope {scope}, found one without"
            )
        models = principal.models
        if models is not None and models.verdicts.get(model) is not True:
            principal = self._limited(principal, scope, model, filters=filters)
        self._used.add(key.id)
        return principal

    def _limited(
        self, principal: Principal, scope: AccessScope, model: str | None, *, filters: bool
    ) -> Principal:
        """Return the sender of a request with a key with patterns, if they match the model.

        What needs no key is seen with a key, too. Raises ModelNotFound and ScopeMissing.
        """
        if model is None and not filters:
            raise ScopeMissing(
                f"key {principal.key_id}: expected one for all models, found one for some"
            )
        if model is None:
            open_models = self.anybody.models if scope in self._open else None
            if open_models is None or principal.models is None:
                return principal
            return principal._replace(
                models=ModelPatterns((*principal.models.patterns, *open_models.patterns))
            )
        if not principal.sees(model):
            raise ModelNotFound(f"model: expected one of the store, found {model[:80]!r}")
        return principal

    def row_sender(self, authorization: bytes | None, model: str) -> str | None:
        """Return the name of the key whose feedback may be stored as rows of a model.

        Empty without a header, which `check` has accepted only if the scope is open. With a header
        its key decides, even if no key is needed. None if it gives no rows, or is unknown.
        """
        key_id = self.key_id(authorization)
        if authorization is None or key_id == ENVIRONMENT.key_id:
            return "" if authorization is None else ENVIRONMENT.name
        holder = self._keys.get((key_id or "").encode())
        return (
            None
            if holder is None or {model, ALL_MODELS} & set(holder.key.no_rows)
            else holder.principal.name
        )

    def key_id(self, authorization: bytes | None) -> str | None:
        """Return the id of the key in a header, in force or not; None if the header has no key."""
        try:
            text = _bearer(authorization)
        except AccessRefused:
            return None
        return (
            ENVIRONMENT.key_id
            if self._admin_digest == hashlib.sha256(text).digest()
            else id_of(text.decode("latin-1"))
        )

    def close(self) -> None:
        """Stop following the database, and write which keys were used, and how much.

        Blocking, as long as the database takes.
        """
        self._following.stop()
        self.usage.close()
        with suppress(XylemError):  # a failure must not stop the end of the process
            self._write_uses()

    def refresh(self) -> None:
        """Read the keys now: after a key was made or revoked in this process.

        Raises DatabaseUnavailable.
        """
        with self._refreshing:
            if self._is_first and self._on_first_key is not None:
                text = ensure_admin_key(self._database)
                self._is_first = False
                if text is not None:
                    self._on_first_key(text)
            began = self._ticks()
            with self._database.read() as connection:
                keys = all_keys(connection)
            self._keys = {key.id.encode(): self._holder_of(key) for key in keys}
            self._read_at = began

    def _holder_of(self, key: AccessKey) -> _Holder:
        """Return the present holder of a key that has not changed, else a new one.

        Only the time of a key's last use ever changes in force: its meter stays.
        """
        holder = self._keys.get(key.id.encode())
        if holder is not None:
            return holder if holder.key == key else _Holder(key, holder.principal)
        meter = KeyMeter(key.limits.over(self._limits), self._senders, self._ticks)
        if key.models is None:
            return _Holder(key, Principal(key.id, key.name, meter=meter))
        return _Holder(
            key, Principal(key.id, key.name, ModelPatterns(key.models), key.data_prefix, meter)
        )

    def _look(self) -> None:
        self.refresh()
        if self._ticks() - self._wrote_uses_at >= USE_SECONDS:
            self._write_uses()

    def _write_uses(self) -> None:
        key_ids = self._used
        self._used = set()
        self._wrote_uses_at = self._ticks()
        if key_ids:
            with self._database.write() as connection:
                note_uses(connection, key_ids, self._clock())


def _bearer(authorization: bytes | None) -> bytes:
    """Return the key in a header. Raises AccessRefused if there is none."""
    if authorization is None:
        raise AccessRefused("expected Authorization: Bearer and a key, found no such header")
    scheme, _, key = authorization.partition(b" ")
    key = key.strip()
    if scheme.lower() != b"bearer" or not key or len(key) > KEY_BYTES_MAX:
        raise AccessRefused(
            "expected Authorization: Bearer and a key, found a header of another form"
        )
    return key
