"""The history of aliases in the database: who moved which, when, from where to where, and why.

The store's file is the truth for what an alias names; the history tells how it came to that. They are two
places, and a process may die between them. So a move is written down in three steps:

1. a row `intended`, committed before the store is changed;
2. the store's file is replaced, which is the moment at which the alias moves;
3. the row `done` takes the place of the intended one.

Steps 2 and 3 are done within one transaction that holds the model's turn, so that rows stand in the order of
the moves. Whoever comes next compares the last row with the store (`settle`). Do they differ, and somebody
intended what the store now says, then that move was made, and its row becomes `done`: a crash after step 2
loses nothing. Did nobody intend it, a row `found` says that the alias was moved by something else: a training
that publishes moves `latest` so. An intention that did not come about is forgotten with the first move of the
alias that comes an hour later.
"""

from __future__ import annotations

import contextlib
import json
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, delete, insert, select, text, update

from service.db.engine import Database
from service.db.tables import ALIAS_HISTORY
from service.errors import BadParameter
from service.registry.causes import Cause

PROMOTED, ROLLED_BACK, PUBLISHED, REMOVED, REFUSED, SPLIT, DENIED, FOUND = (
    "promoted",
    "rolled-back",
    "published",
    "removed",
    "refused",
    "split",
    "denied",
    "found",
)
"""What a row tells. REFUSED is a promotion that its rule did not let happen: the alias stayed. SPLIT: the
alias stayed, and another canary or shadow, or none, stands beside what it names. DENIED: the alias stayed,
and its answers never have other labels than before."""

_TELL_NOTHING = (REFUSED, DENIED)
"""Rows that do not say what an alias names, nor what stands beside it."""

_TELL_SPLITS = (SPLIT, FOUND)
"""Rows whose verdict is the split of the alias from then on; after any other there is none."""

ROWS_MAX = 10_000
"""Rows that are kept of a model: the oldest go first."""

PAGE_MAX = 1000
VERDICT_BYTES_MAX = 16 << 10
WHO_MAX, WHY_MAX, JOB_MAX = 128, 1024, 64

_INTENTION_SECONDS = 3600.0

_INTENDED, _DONE = "intended", "done"


class AliasState(NamedTuple):
    """What the store says of an alias.

    version  what it names; None: it is not there
    split    what stands beside that, as JSON has it; None: nothing
    """

    version: int | None
    split: Mapping[str, Any] | None = None


States = Callable[[str, str], AliasState]
"""What the store says of an alias of a model."""


class AliasChange(NamedTuple):
    """A row of the history.

    action        one of the constants above
    from_version  what the alias named before; None: it was not there, or that is not known
    to_version    what it named then; None: it was removed. Of a refusal: what it would have named
    at            seconds since 1970; of `found`, when it was found
    verdict       what a promotion rule found, None without one; of `split`, and of `found` where there is
                  one: the split from then on, as `GET /v1/models/{model}` has it
    """

    id: int
    model: str
    alias: str
    action: str
    from_version: int | None
    to_version: int | None
    at: float
    who: str
    why: str
    job: str | None
    verdict: dict[str, Any] | None


class Step(NamedTuple):
    """A move that is to be made; `split` is what is to stand beside the version then."""

    model: str
    alias: str
    action: str
    to_version: int | None
    cause: Cause
    split: Mapping[str, Any] | None = None

    @property
    def state(self) -> AliasState:
        """Return what the store will say."""
        return AliasState(self.to_version, self.split)


class AliasHistory:
    """The history in a database. Thread-safe; calls raise DatabaseUnavailable.

    states  asks the store; it is called while the model's turn is held
    """

    def __init__(self, database: Database, states: States) -> None:
        self._database = database
        self._state = states

    def intend(self, step: Step) -> int:
        """Write down that a move will be made, durably; return the number of the intention.

        Raises BadParameter for a verdict that is too large or not JSON.
        """
        values = _values_of(step, None, _INTENDED)
        with self._turn(step.model) as connection:
            self._settle(connection, step.model, step.alias)
            made = connection.execute(insert(ALIAS_HISTORY).values(values))
            return int(made.inserted_primary_key[0])  # type: ignore[index]

    def make(self, step: Step, intention: int, act: Callable[[], object]) -> None:
        """Do what was intended, by `act`, in the model's turn, and write it down as done.

        Raises what `act` does: then the intention is still there, to be given up. A DatabaseUnavailable may
        come before or after `act` has run; what the store says then will be found.
        """
        model, alias = step.model, step.alias
        with self._turn(model) as connection:
            self._settle(connection, model, alias)
            before = self._state(model, alias)
            act()
            after = self._state(model, alias)
            _forget_intentions(connection, step, intention)
            if before != after:
                made = step._replace(to_version=after.version, split=after.split)
                values = _values_of(made, before.version, _DONE)
                connection.execute(insert(ALIAS_HISTORY).values(values))
                _forget_oldest(connection, model)

    def give_up(self, intention: int) -> None:
        """Forget a move that could not be made."""
        with self._database.write() as connection:
            connection.execute(delete(ALIAS_HISTORY).where(ALIAS_HISTORY.c.id == intention))

    def note_published(self, step: Step) -> None:
        """Write down that a publication has moved an alias to `to_version`, if that is not there already."""
        model, alias = step.model, step.alias
        with self._turn(model) as connection:
            last = _last(connection, model, alias)
            if last is None or _state_of(last) != step.state:
                if self._is_behind(connection, model, alias):
                    values = _values_of(step, last and last.to_version, _DONE)
                    connection.execute(insert(ALIAS_HISTORY).values(values))
            elif last.action == FOUND:  # by who came in between: say who it was
                values = _values_of(step, last.from_version, _DONE)
                connection.execute(update(ALIAS_HISTORY).where(ALIAS_HISTORY.c.id == last.id).values(values))
            self._settle(connection, model, alias)

    def note_stayed(self, step: Step) -> None:
        """Write down what leaves an alias where it is: a promotion refused, or labels denied."""
        with self._turn(step.model) as connection:
            self._settle(connection, step.model, step.alias)
            now = self._state(step.model, step.alias).version
            values = _values_of(step, now, _DONE)
            connection.execute(insert(ALIAS_HISTORY).values(values))
            _forget_oldest(connection, step.model)

    def settle(self, model: str, aliases: list[str]) -> None:
        """Bring the history of some aliases, and of all that it knows, to what the store says."""
        with self._database.read() as connection:
            known = select(ALIAS_HISTORY.c.alias).where(ALIAS_HISTORY.c.model == model).distinct()
            everyone = sorted({*aliases, *connection.execute(known).scalars()})
            behind = [alias for alias in everyone if self._is_behind(connection, model, alias)]
        if behind:
            with self._turn(model) as connection:
                for alias in behind:
                    self._settle(connection, model, alias)

    def page(
        self, model: str, alias: str | None = None, before: int | None = None, limit: int = 100
    ) -> list[AliasChange]:
        """Return up to `limit` rows (1 to PAGE_MAX), the newest first: those with an id below `before`."""
        query = select(ALIAS_HISTORY).where(ALIAS_HISTORY.c.model == model, ALIAS_HISTORY.c.state == _DONE)
        if alias is not None:
            query = query.where(ALIAS_HISTORY.c.alias == alias)
        if before is not None:
            query = query.where(ALIAS_HISTORY.c.id < before)
        query = query.order_by(ALIAS_HISTORY.c.id.desc()).limit(min(max(limit, 1), PAGE_MAX))
        with self._database.read() as connection:
            return [_change_of(row) for row in connection.execute(query)]

    def of_version(self, model: str, version: int) -> list[AliasChange]:
        """Return the newest PAGE_MAX rows in which an alias came to name a version, or was refused to."""
        query = select(ALIAS_HISTORY).where(
            ALIAS_HISTORY.c.model == model,
            ALIAS_HISTORY.c.state == _DONE,
            ALIAS_HISTORY.c.action.not_in((SPLIT, DENIED)),
            ALIAS_HISTORY.c.to_version == version,
        )
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(ALIAS_HISTORY.c.id.desc()).limit(PAGE_MAX))
            return [_change_of(row) for row in rows]

    @contextlib.contextmanager
    def _turn(self, model: str) -> Iterator[Connection]:
        """Yield a transaction in which nobody else moves an alias of the model through the history."""
        with self._database.write() as connection:
            if connection.dialect.name == "postgresql":  # SQLite has one writer at a time
                turn = {"space": zlib.crc32(b"alias_history") >> 1, "model": zlib.crc32(model.encode()) >> 1}
                connection.execute(text("SELECT pg_advisory_xact_lock(:space, :model)"), turn)
            yield connection

    def _is_behind(self, connection: Connection, model: str, alias: str) -> bool:
        return _state_of(_last(connection, model, alias)) != self._state(model, alias)

    def _settle(self, connection: Connection, model: str, alias: str) -> None:
        """Bring the history of an alias to what the store says, in the model's turn."""
        before, now = _state_of(_last(connection, model, alias)), self._state(model, alias)
        if before == now:
            return
        intended = select(ALIAS_HISTORY).where(
            ALIAS_HISTORY.c.model == model,
            ALIAS_HISTORY.c.alias == alias,
            ALIAS_HISTORY.c.state == _INTENDED,
        )
        rows = connection.execute(intended.order_by(ALIAS_HISTORY.c.id.desc())).all()
        made = next((row for row in rows if _state_of(row) == now), None)
        if made is None:
            cause = Cause("", "moved by a publication, or past the registry")
            step = Step(model, alias, FOUND, now.version, cause, now.split)
            values = _values_of(step, before.version, _DONE)
        else:
            connection.execute(delete(ALIAS_HISTORY).where(ALIAS_HISTORY.c.id == made.id))
            values = {**made._mapping, "state": _DONE, "from_version": before.version}
            del values["id"]  # rows stand in the order of the moves
        connection.execute(insert(ALIAS_HISTORY).values(values))
        _forget_oldest(connection, model)


def _last(connection: Connection, model: str, alias: str) -> Row[Any] | None:
    """Return the last row that says what an alias names."""
    query = select(ALIAS_HISTORY).where(
        ALIAS_HISTORY.c.model == model,
        ALIAS_HISTORY.c.alias == alias,
        ALIAS_HISTORY.c.state == _DONE,
        ALIAS_HISTORY.c.action.not_in(_TELL_NOTHING),
    )
    return connection.execute(query.order_by(ALIAS_HISTORY.c.id.desc()).limit(1)).one_or_none()


def _state_of(row: Row[Any] | None) -> AliasState:
    """Return what the store said when a row was written, or is to say if it is intended."""
    if row is None:
        return AliasState(None)
    tells_split = row.action in _TELL_SPLITS and row.verdict is not None
    return AliasState(row.to_version, json.loads(row.verdict) if tells_split else None)


def _forget_intentions(connection: Connection, step: Step, intention: int) -> None:
    """Forget an intention that was made, and those of an hour ago and more, whose processes are gone."""
    is_old = (
        (ALIAS_HISTORY.c.model == step.model)
        & (ALIAS_HISTORY.c.alias == step.alias)
        & (ALIAS_HISTORY.c.state == _INTENDED)
        & (ALIAS_HISTORY.c.at < time.time() - _INTENTION_SECONDS)
    )
    connection.execute(delete(ALIAS_HISTORY).where((ALIAS_HISTORY.c.id == intention) | is_old))


def _forget_oldest(connection: Connection, model: str) -> None:
    mine = ALIAS_HISTORY.c.model == model
    ids = select(ALIAS_HISTORY.c.id).where(mine).order_by(ALIAS_HISTORY.c.id.desc())
    oldest = connection.execute(ids.offset(ROWS_MAX).limit(1)).scalar_one_or_none()
    if oldest is not None:
        connection.execute(delete(ALIAS_HISTORY).where(mine, ALIAS_HISTORY.c.id <= oldest))


def _values_of(step: Step, from_version: int | None, state: str) -> dict[str, Any]:
    """Return the columns of a row of now. Raises BadParameter."""
    cause = step.cause
    told = cause.verdict if step.split is None else step.split
    try:
        verdict = None if told is None else json.dumps(told, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadParameter(f"verdict: expected an object for JSON, found: {error}") from None
    if verdict is not None and len(verdict) > VERDICT_BYTES_MAX:
        raise BadParameter(f"verdict: expected at most {VERDICT_BYTES_MAX} bytes, found {len(verdict)}")
    return {
        "model": step.model,
        "alias": step.alias,
        "state": state,
        "action": step.action,
        "from_version": from_version,
        "to_version": step.to_version,
        "at": time.time(),
        "who": _printable(cause.who, WHO_MAX),
        "why": _printable(cause.why, WHY_MAX),
        "job": cause.job and cause.job[:JOB_MAX],
        "verdict": verdict,
    }


def _printable(given: str, length: int) -> str:
    """Return a text of at most `length` characters, blanks for those that cannot be shown."""
    return "".join(c if c.isprintable() else " " for c in given[:length])


def _change_of(row: Row[Any]) -> AliasChange:
    values = {name: getattr(row, name) for name in AliasChange._fields}
    return AliasChange(**values | {"verdict": row.verdict and json.loads(row.verdict)})
