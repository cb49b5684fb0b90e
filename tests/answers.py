"""Answers of a served version to bodies, by both ways: as the event loop answers, and as a thread does."""

from __future__ import annotations

from service.serving.answer import SearchDialect
from service.serving.dialect import Body, Reply
from service.serving.predict import PREDICT
from service.serving.served import ServedVersion
from service.settings import Limits
from service.stages import StageNotes


def reply_of(body: bytes, served: ServedVersion, dialect: SearchDialect = PREDICT) -> Reply:
    """The answer of a thread."""
    return dialect.answer_fully(dialect.read(Body(body), Limits()), served)


def in_thread(body: bytes, served: ServedVersion, dialect: SearchDialect = PREDICT) -> bytes:
    """The bytes of the answer of a thread."""
    return b"".join(reply_of(body, served, dialect).parts)


def at_once(body: bytes, served: ServedVersion, dialect: SearchDialect = PREDICT) -> bytes | None:
    """The bytes of the answer of the event loop; None: it leaves the request to a thread."""
    found = dialect.answer(Body(body), served, Limits(), StageNotes())
    return b"".join(found.parts) if isinstance(found, Reply) else None
