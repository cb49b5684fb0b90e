"""The events that were counted, remembered by their keys so that each counts once."""

import sqlite3
from collections.abc import Sequence

from sqlalchemy import (
    ARRAY,
    Connection,
    Integer,
    LargeBinary,
    bindparam,
    delete,
    func,
    insert,
    literal_column,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from service.db import EVENT_KEY_BYTES
from service.db.engine import Compiled
from service.db.tables import EVENTS

_COLUMNS = EVENTS.c.event_key, EVENTS.c.day

_LISTED = select(func.unnest(bindparam("keys", type_=ARRAY(LargeBinary))), bindparam("day", type_=Integer))
_REMEMBER_LISTED = Compiled(
    postgresql_insert(EVENTS)
    .from_select(_COLUMNS, _LISTED)
    .on_conflict_do_nothing()
    .returning(EVENTS.c.event_key)
)
"""PostgreSQL, which has arrays: remembers keys, and returns those that are new."""

_LENGTH = literal_column(str(EVENT_KEY_BYTES), Integer)
_FIRST = select(literal_column("1", Integer).label("first")).cte("place", recursive=True)
_PLACE = _FIRST.union_all(
    select(_FIRST.c.first + _LENGTH).where(_FIRST.c.first + _LENGTH < func.length(bindparam("keys")))
)
_JOINED = select(func.substr(bindparam("keys"), _PLACE.c.first, _LENGTH), bindparam("day")).where(true())
_REMEMBER_ALL = Compiled(insert(EVENTS).from_select(_COLUMNS, _JOINED))
_REMEMBER_JOINED = Compiled(
    sqlite_insert(EVENTS)
    .from_select(_COLUMNS, _JOINED)
    .on_conflict_do_nothing()
    .returning(EVENTS.c.event_key)
)
"""SQLite, which has none: remembers keys of equal length that are joined; all or none of them, or those that
are new, which it returns."""

_LAST_OF_NEXT = Compiled(
    select(EVENTS.c.event_key)
    .where(EVENTS.c.event_key > bindparam("after"))
    .order_by(EVENTS.c.event_key)
    .limit(literal_column("1"))
    .offset(bindparam("n_before"))
)
_FORGET = Compiled(
    delete(EVENTS)
    .where(EVENTS.c.event_key > bindparam("after"), EVENTS.c.event_key <= bindparam("last"))
    .where(EVENTS.c.day < bindparam("before_day"))
)
_AFTER_ALL = b"\xff" * (EVENT_KEY_BYTES + 1)


def add_events(connection: Connection, keys: Sequence[bytes], day: int) -> set[bytes]:
    """Remember events, EVENT_KEY_BYTES each, without repeats; return those that were not known before.

    On PostgreSQL, where others may add the same for another version meanwhile, all add theirs in one order,
    so that none waits for one that waits for it. On SQLite, where nobody else writes, all are put in, and
    only if some were known, which undoes that, is it found out which: to have each returned takes half as
    long again.
    """
    if not keys:
        return set()
    if connection.dialect.name == "postgresql":
        new = _REMEMBER_LISTED.run(connection, keys=sorted(keys), day=day)
    else:
        joined = b"".join(keys)
        try:
            _REMEMBER_ALL.run(connection, keys=joined, day=day)
            return set(keys)
        except sqlite3.IntegrityError:
            new = _REMEMBER_JOINED.run(connection, keys=joined, day=day)
    return {key for (key,) in new}


def forget_events(connection: Connection, before_day: int, after: bytes, n_most: int) -> tuple[int, bytes]:
    """Forget events of days before `before_day` among the next ones, n_most at most, by their keys.

    An index by day would double what every event writes: so they are gone through round and round instead.

    after   the last key of the call before; b"" at first

    Returns how many were forgotten, and the last key; b"" at the end of all.
    """
    found = _LAST_OF_NEXT.run(connection, after=after, n_before=n_most - 1).fetchone()
    last = _AFTER_ALL if found is None else found[0]
    forgotten = _FORGET.run(connection, after=after, last=last, before_day=before_day).rowcount
    return forgotten, b"" if found is None else last
