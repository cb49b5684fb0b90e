"""The moves of a model's aliases: who did what to which, when and why. A file that only grows.

A move is a line, appended before the alias's document is replaced, under the same lock; its number
is the serial of the document that it makes. So the document tells whether the last move took
effect: a writer that died in between leaves a line that does not count, and the next move takes its
number.
"""

import json
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from xylem_store.alias import Alias

# The actions of moves.
#
# REFUSED  a promotion that its rule refused: the alias stayed
# SPLIT    the alias names the same version, with another canary or shadow, or none
# DENIED   the alias names the same version, and denies other labels
# ADOPTED  the alias was written down as it is: in the object store that is followed, or here, where
#          `latest` had no document
PROMOTED = "promoted"
ROLLED_BACK = "rolled-back"
PUBLISHED = "published"
REMOVED = "removed"
REFUSED = "refused"
SPLIT = "split"
DENIED = "denied"
ADOPTED = "found"

MOVES_BYTES_MAX = 4 << 20  # the most bytes of the file; when it is longer, the newer half is kept

WHO_MAX = 128
WHY_MAX = 1024
JOB_MAX = 64

# The most names of labels that a move lists as added or removed, and the characters of each.
LISTED_NAMES_MAX = 5
LISTED_CHARACTERS_MAX = 80


class Cause(NamedTuple):
    """The person or job that changes an alias, and the reason.

    who      the name of a key with its id, or of a user of the machine; at most 128 characters are
             kept
    why      the reason; at most 1,024 characters are kept
    job      the id of the job that makes the change, None for a person
    verdict  the verdict of a promotion rule, an object for JSON; None without a rule
    """

    who: str = ""
    why: str = ""
    job: str | None = None
    verdict: Mapping[str, Any] | None = None


NOBODY = Cause()


class Move(NamedTuple):
    """A move of an alias.

    id            ascends with the moves of a model
    action        one of the constants above, or the word of another change
    from_version  the version that the alias named before; None: there was no alias, or it is
                  unknown
    to_version    the version that it named afterwards; None: it was removed. In a refusal: the
                  version that it would have named
    at            seconds since 1970
    verdict       the verdict of a promotion rule. Without one: canary and shadow, if the alias has
                  any; or, if it denies other labels, their number and the first that were added and
                  removed. Else None
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
    """Return the move of this moment, without its number, from an alias's old to its new state."""
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
    """Return the line of a move in the file, as JSON."""
    return json.dumps(move._asdict(), ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def parse_moves(data: bytes, find_alias: Callable[[str], Alias | None]) -> list[Move]:
    """Return the moves in the bytes of their file that took effect, by ascending number.

    find_alias  returns the present alias of a name, None if there is none

    A line that is cut off or damaged is skipped: it is history, and nothing depends on it.
    """
    moves: list[Move] = []
    for line in data.split(b"\n")[:-1]:
        try:
            move = Move(**json.loads(line))
        except (ValueError, TypeError, RecursionError):
            continue
        if type(move.id) is int and type(move.alias) is str:
            while moves and moves[-1].id >= move.id:  # its writer died before the move took effect
                moves.pop()
            moves.append(move)
    while moves and not _came_about(moves[-1], find_alias(moves[-1].alias)):
        if moves.pop().to_version is not None:  # only deleting a model appends several at once
            break
    return moves


def _came_about(move: Move, alias: Alias | None) -> bool:
    """Return whether the last move of an alias took effect, by its present document."""
    if move.action == REFUSED:
        return True
    if alias is None:
        return move.to_version is None
    return alias.serial > move.id if move.to_version is None else alias.serial >= move.id


def _details(old_alias: Alias, new_alias: Alias | None) -> dict[str, Any] | None:
    """Return the change of an alias besides its version: its denied labels, or its split."""
    if new_alias is None:
        return None
    if new_alias.denied != old_alias.denied:
        return {
            "denied": len(new_alias.denied),
            "added": _first(set(new_alias.denied).difference(old_alias.denied)),
            "removed": _first(set(old_alias.denied).difference(new_alias.denied)),
        }
    return new_alias.split() if new_alias.split_versions else None


def _first(names: Collection[str]) -> list[str]:
    return [name[:LISTED_CHARACTERS_MAX] for name in sorted(names)[:LISTED_NAMES_MAX]]


def _printable(text: str, length: int) -> str:
    """Return the first `length` characters of a text, blanks for those that cannot be printed."""
    return "".join(c if c.isprintable() else " " for c in text[:length])
