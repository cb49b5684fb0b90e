"""The audit log: the actions of admins, in the database, without secrets and bodies of requests.

The newest ROWS_MAX entries are stored, whatever their age: 10,000 a day for ten days, or ten a day
for 27 years. Copy them elsewhere if you need more: `page` reads from the newest to the oldest.
"""

import re
import time
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import delete, insert, select, update

from xylem.base.access.key_text import without_secrets
from xylem.base.access.keys import moment
from xylem.base.access.ring import Principal
from xylem.base.db.engine import Database
from xylem.base.db.tables import AUDIT_LOG

ROWS_MAX = 100_000

# The outcome of an unfinished action; it stays if the final outcome could not be written.
BEGUN = "begun"

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True)
class AuditEntry:
    """An action of an admin.

    id          ascends with time
    at          RFC 3339
    key_id      the id of the key; `environment` for the key of the settings; empty for a command
    who         the name of the key, or for a command of its user
    target      what the action changed, such as `debtags@3 stable`
    request_id  as in the log; empty for a command
    """

    id: int
    at: str
    key_id: str
    who: str
    action: str
    target: str
    outcome: Annotated[
        str, Field(description="done, the code of the problem that was answered, or begun")
    ]
    request_id: str


class AuditLog:
    """The audit log in a database. Thread-safe; calls raise DatabaseUnavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(
        self, who: Principal, action: str, target: str, outcome: str = "done", request_id: str = ""
    ) -> int:
        """Add an entry, and return its id; entries older than the newest ROWS_MAX are deleted.

        In its texts control characters become blanks, and keys are cut to their ids; a text that is
        too long for its column is cut.
        """
        entry_texts = {
            "who": who.name,
            "action": action,
            "target": target,
            "outcome": outcome,
            "request_id": request_id,
        }
        columns: Any = AUDIT_LOG.c
        values = {
            name: _CONTROL.sub(" ", without_secrets(text))[: columns[name].type.length]
            for name, text in entry_texts.items()
        }
        with self._database.write() as connection:
            insertion = connection.execute(
                insert(AUDIT_LOG).values(at=time.time(), key_id=who.key_id, **values)
            )
            number: int = insertion.inserted_primary_key[0]  # type: ignore[index]
            connection.execute(delete(AUDIT_LOG).where(AUDIT_LOG.c.id <= number - ROWS_MAX))
        return number

    def conclude(self, number: int, outcome: str) -> None:
        """Write the outcome of an entry whose outcome was BEGUN."""
        with self._database.write() as connection:
            connection.execute(
                update(AUDIT_LOG).where(AUDIT_LOG.c.id == number).values(outcome=outcome)
            )

    def page(self, below_id: int | None = None, limit: int = 100) -> list[AuditEntry]:
        """Return up to `limit` entries with ids below `below_id`, if given; the newest first."""
        query = select(AUDIT_LOG).order_by(AUDIT_LOG.c.id.desc()).limit(limit)
        if below_id is not None:
            query = query.where(AUDIT_LOG.c.id < below_id)
        with self._database.read() as connection:
            return [
                AuditEntry(**{**row._mapping, "at": moment(row.at)})
                for row in connection.execute(query)
            ]
