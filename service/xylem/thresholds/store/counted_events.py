"""The keys of events that were counted: an event that comes again is recognised by its key."""

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

from xylem.base import (
    EVENT_KEY_BYTES,
    EVENTS,
    Compiled,
)

_COLUMNS = EVENTS.c.event_key, EVENTS.c.day

# For PostgreSQL, which has arrays: insert event keys, and return those that are new.
_LISTED = select(
    func.unnest(bindparam("keys", type_=ARRAY(LargeBinary))), bindparam("day", type_=Integer)
)
_REMEMBER_LISTED = Compiled(
    postgresql_insert(EVENTS)
    .from_select(_COLUMNS, _LISTED)
    .on_conflict_do_nothing()
    .returning(EVENTS.c.event_key)
)

# For SQLite, which has no arrays: the keys, of equal length, are joined into one value.
#
# _REMEMBER_ALL inserts all keys or fails; this one inserts those that are new, and returns them.
_LENGTH = literal_column(str(EVENT_KEY_BYTES), Integer)
_FIRST = select(literal_column("1", Integer).label("first")).cte("place", recursive=True)
_PLACE = _FIRST.union_all(
    select(_FIRST.c.first + _LENGTH).where(
        _FIRST.c.first + _LENGTH < func.length(bindparam("keys"))
    )
)
_JOINED = select(func.substr(bindparam("keys"), _PLACE.c.first, _LENGTH), bindparam("day")).where(
    true()
)
_REMEMBER_ALL = Compiled(insert(EVENTS).from_select(_COLUMNS, _JOINED))
_REMEMBER_JOINED = Compiled(
    sqlite_insert(EVENTS)
    .from_select(_COLUMNS, _JOINED)
    .on_conflict_do_nothing()
    .returning(EVENTS.c.event_key)
)

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
_AFTER_ALL = b"\xff" * (EVENT_KEY_BYTES + 1)  # is above every key


def add_events(connection: Connection, keys: Sequence[bytes], day: int) -> set[bytes]:
    """Remember events by their keys, without repeats; return the keys that were not known before.

    keys   EVENT_KEY_BYTES each

    On PostgreSQL another process may add the same keys for another version meanwhile: all processes
    add their keys in ascending order, so that no two wait for each other. On SQLite nobody else
    writes. There all keys are inserted by one statement; if a key is known already, that statement
    fails without effect, and a second one inserts the new keys and returns them. The second one
    alone would take half as long again as the first.
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


def forget_events(
    connection: Connection, before_day: int, previous_key: bytes, n_most: int
) -> tuple[int, bytes]:
    """Forget events of days before `before_day` among the next n_most events.

    All events are visited in the order of their keys, round after round: an index by day would
    double what is written for every event.

    previous_key   the key that the previous call returned; b"" at first

    Returns how many events were forgotten, and the last key visited; b"" at the end of all.
    """
    row = _LAST_OF_NEXT.run(connection, after=previous_key, n_before=n_most - 1).fetchone()
    last = _AFTER_ALL if row is None else row[0]
    forgotten = _FORGET.run(
        connection, after=previous_key, last=last, before_day=before_day
    ).rowcount
    return forgotten, b"" if row is None else last
