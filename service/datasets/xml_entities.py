"""The entities that an XML file declares: such as only shorten names, or the file is refused."""

from __future__ import annotations

import contextlib
from xml.parsers import expat

ENTITY_LENGTH_MAX = 512
"""Characters of an entity. Files of ontologies shorten the beginnings of URIs by them."""


class BadEntity(Exception):
    """An entity that names another, another file, or is too long: what makes small files grow or leak."""


class _Seen(Exception):
    """The first element begins: entities are declared before."""


def check_entities(data: bytes) -> None:
    """Raise BadEntity unless each entity that the file declares is a short text.

    Nested ones can make gigabytes of a kilobyte, which not every release of expat bounds. Stops at the first
    element. XML that is not well-formed is the parser's to refuse.
    """
    parser = expat.ParserCreate()

    def declared(
        name: str, is_parameter: bool, value: str | None, base: str | None, *elsewhere: str | None
    ) -> None:
        if is_parameter or value is None or any(elsewhere):
            raise BadEntity(f"expected entities of texts, found {name[:40]!r} of another file or parameter")
        if len(value) > ENTITY_LENGTH_MAX or "&" in value or "%" in value:
            raise BadEntity(
                f"expected entities of at most {ENTITY_LENGTH_MAX} characters, without others in them, found "
                f"{name[:40]!r}"
            )

    def begun(name: str, attributes: dict[str, str]) -> None:
        raise _Seen

    parser.EntityDeclHandler = declared
    parser.StartElementHandler = begun
    with contextlib.suppress(_Seen, expat.ExpatError):
        parser.Parse(data, True)
