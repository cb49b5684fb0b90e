"""Who moves an alias, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Cause(NamedTuple):
    """Who asks for a change of the registry, and why.

    who      the name of a key with its id, or of a user of the machine; at most 128 characters are kept
    why      what they said; at most 1,024 characters are kept
    job      the id of the job that does it, None where a person does
    verdict  what a promotion rule found, an object for JSON of at most 16 KiB; None where there was no rule
    """

    who: str
    why: str = ""
    job: str | None = None
    verdict: Mapping[str, Any] | None = None
