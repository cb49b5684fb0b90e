"""The moves of a model's aliases: who did what to which, when and
why. A file of lines that only grows.

A move is appended before the alias's document is replaced, under the same lock, and its number is
the serial of the document that it makes. So the document says whether the last move came about: a
writer that died in between leaves a line that does not count, and the next move takes its number.
"""

import json
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from xylem_store.alias import Alias

PROMOTED = "promoted"
ROLLED_BACK = "rolled-back"
PUBLISHED = "published"
REMOVED = "removed"
REFUSED = "refused"
SPLIT = "split"
DENIED = "denied"
FOUND = "found"
"""What a move did.

REFUSED  a promotion that its rule did not let happen: the alias stayed
SPLIT    the alias stayed, and another canary or shadow, or none, stands beside what it names
DENIED   the alias stayed, and its answers never have other labels than before
FOUND    it is as something else has it: the object store that is followed, or an earlier release
"""

MOVES_BYTES_MAX = 4 << 20
"""Of the file; once it is longer, the newer half is kept."""

WHO_MAX = 128
WHY_MAX = 1024
JOB_MAX = 64
LISTED_NAMES_MAX = 5
LISTED_CHARACTERS_MAX = 80
"""Names of labels that came and went which a move keeps, and how much of each."""


class Cause(NamedTuple):
    """Who changes an alias, and why.

    who      the name of a key with its id, or of a user of the machine; at most 128 characters are
             kept
    why      what they said; at most 1,024 characters are kept
    job      the id of the job that does it, None where a person does
    verdict  what a promotion rule found, an object for JSON; None where there was no rule
    """

    who: str = ""
    why: str = ""
    job: str | None = None
    verdict: Mapping[str, Any] | None = None


NOBODY = Cause()


class Move(NamedTuple):
    """A move of an alias.

    id            ascends with the moves of a model
    action        one of the constants above, or another verb's word
    from_version  what the alias named before; None: it was not there, or that is not known
    to_version    what it named then; None: it was removed. Of a refusal: what it would have named
    at            seconds since 1970
    verdict       what a promotion rule found, None without one; where another canary or shadow
                  stands beside the alias: both; where it denies other labels: how many, and the
                  first that came and went
    """

    id: int
    alias: str
    action: str
    from_version: int | None
    to_version: int | None
    at: float
    who: str
    why: str
    job: str | None
    verdict: dict[str, Any] | None


def move_of(
    name: str, action: str, old_alias: Alias, new_alias: Alias | None, cause: Cause
) -> Move:
    """Return the move of now, without its number, that makes an alias of what it was."""
    verdict = cause.verdict if cause.verdict is not None else _details(old_alias, new_alias)
    return Move(
        id=0,
        alias=name,
        action=action,
        from_version=old_alias.version or None,
        to_version=new_alias and new_alias.version,
        at=time.time(),
        who=_printable(cause.who, WHO_MAX),
        why=_printable(cause.why, WHY_MAX),
        job=cause.job and cause.job[:JOB_MAX],
        verdict=None if verdict is None else dict(verdict),
    )


def render_move(move: Move) -> bytes:
    """Return the line of a move."""
    return json.dumps(move._asdict(), ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def parse_moves(data: bytes, find_alias: Callable[[str], Alias | None]) -> list[Move]:
    """Return the moves in the bytes of their file that came about, by ascending number.

    find_alias  returns the alias of a name as it is now, None where it is not there

    A line that is cut off or damaged is passed over: it tells what was, and nothing rests on it.
    """
    moves: list[Move] = []
    for line in data.split(b"\n")[:-1]:
        try:
            move = Move(**json.loads(line))
        except (ValueError, TypeError, RecursionError):
            continue
        if type(move.id) is int and type(move.alias) is str:
            while moves and moves[-1].id >= move.id:  # its writer died before it came about
                moves.pop()
            moves.append(move)
    while moves and not _came_about(moves[-1], find_alias(moves[-1].alias)):
        if moves.pop().to_version is not None:  # only who removes a model appends several at once
            break
    return moves


def _came_about(move: Move, alias: Alias | None) -> bool:
    if move.action == REFUSED:
        return True
    if alias is None:
        return move.to_version is None
    return alias.serial > move.id if move.to_version is None else alias.serial >= move.id


def _details(old_alias: Alias, new_alias: Alias | None) -> dict[str, Any] | None:
    """Return what a change of an alias tells besides the versions: of
    its denied labels, or of its split.
    """
    if new_alias is None:
        return None
    if new_alias.denied != old_alias.denied:
        added = set(new_alias.denied).difference(old_alias.denied)
        removed = set(old_alias.denied).difference(new_alias.denied)
        return {"denied": len(new_alias.denied), "added": _first(added), "removed": _first(removed)}
    return new_alias.split() if new_alias.split_versions else None


def _first(names: Collection[str]) -> list[str]:
    return [name[:LISTED_CHARACTERS_MAX] for name in sorted(names)[:LISTED_NAMES_MAX]]


def _printable(text: str, length: int) -> str:
    """Return a text of at most `length` characters, blanks for those that cannot be shown."""
    return "".join(c if c.isprintable() else " " for c in text[:length])
