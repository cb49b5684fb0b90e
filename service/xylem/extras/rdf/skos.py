"""Read the concepts of SKOS from Turtle, RDF/XML or N-Triples, parsed by rdflib."""

import contextlib
import io
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from xml.parsers import expat

from xylem.base import BadData
from xylem.datasets import WORKFLOW_FINDINGS, DataFile, tidy
from xylem_store import UNDETERMINED, Subject, is_language

# The most characters of an XML entity. Ontologies abbreviate the beginnings of URIs by entities.
ENTITY_LENGTH_MAX = 512


# The longest literal of RDF: in bytes for Turtle and N-Triples, in characters for XML.
#
# rdflib joins a literal from pieces, one for each escape, entity or line, and copies all earlier
# pieces each time: a literal of 1.5 MB took minutes.
TEXT_LENGTH_MAX = 1 << 16

_QUOTED = (
    rb"{0}{0}{0}(?:[^{0}\\]++|\\.|{0}(?!{0}{0}))*+(?:{0}{0}{0}|\Z)|{0}(?:[^{0}\\\n]++|\\.)*+{0}?"
)
_LITERALS = re.compile(
    rb'<[^<>"{}|^`\\\x00-\x20]*+>|#[^\n]*+|('
    + b"|".join(_QUOTED.replace(b"{0}", quote) for quote in (b'"', b"'"))
    + b")",
    re.DOTALL,
)  # URIs and comments are matched too, outside the group: they may contain quotes


def check_literals(file: DataFile, data: bytes) -> None:
    """Raise BadData for a literal of Turtle or N-Triples of more than TEXT_LENGTH_MAX bytes.

    Takes time that is linear in the size of the data.
    """
    for token in _LITERALS.finditer(data):
        if token.end(1) - token.start(1) > TEXT_LENGTH_MAX:
            raise file.fault(
                data.count(b"\n", 0, token.start()) + 1,
                f"expected literals of at most {TEXT_LENGTH_MAX} bytes, found a longer one",
            )


def check_entities(file: DataFile, data: bytes) -> None:
    """Raise BadData unless all entities that a file of XML declares, and all texts, are short.

    Nested entities can make gigabytes of a kilobyte, and not every release of expat limits this.
    Here XML that is not well-formed is accepted: rdflib refuses it later.
    """
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.buffer_size = 2 * TEXT_LENGTH_MAX  # a text that fits comes in one piece

    def take_text(text: str) -> None:
        if len(text) > TEXT_LENGTH_MAX:
            raise file.fault(
                parser.CurrentLineNumber,
                f"expected texts of at most {TEXT_LENGTH_MAX} characters, found a longer one",
            )

    def take_entity(
        name: str, is_parameter: bool, value: str | None, *elsewhere: str | None
    ) -> None:
        if is_parameter or value is None or any(elsewhere[1:]):
            raise file.fault(
                None,
                f"expected entities of texts, found {name[:40]!r} of another file or parameter",
            )
        if len(value) > ENTITY_LENGTH_MAX or "&" in value or "%" in value:
            raise file.fault(
                None,
                f"expected entities of at most {ENTITY_LENGTH_MAX} characters, without others in "
                f"them, found {name[:40]!r}",
            )

    parser.EntityDeclHandler = take_entity
    parser.CharacterDataHandler = take_text
    parser.EndElementHandler = lambda _: None  # with a handler, a text ends where its element does
    with contextlib.suppress(expat.ExpatError):
        parser.Parse(data, True)


# The base of relative URIs, by which they are recognised and refused.
#
# Without it, rdflib would take a path of this machine.
_BASE = "http://relative.invalid/"

_SKOS = "http://www.w3.org/2004/02/skos/core#"
_SKOSXL = "http://www.w3.org/2008/05/skos-xl#"
_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
_DEPRECATED = "http://www.w3.org/2002/07/owl#deprecated"
_KINDS = ("prefLabel", "altLabel", "hiddenLabel")


_BAD_LANGUAGE = re.compile(
    rb"""(\sxml:lang\s*=\s*["'])(?!["']|[A-Za-z]+(?:-[A-Za-z0-9]+)*["'])([^"'<>]*)"""
)

# The front of a tag that stands for one that is no language, whose bytes follow: rdflib refuses
# a whole file for such a tag, and does not say where it is.
_QUOTED_LANGUAGE = "x-quoted-"


def read_skos(
    file: DataFile, kind: str, language: str | None, *, first_name: bool = False
) -> list[Subject]:
    """Read the resources of type skos:Concept, in the order in which the file gives that type.

    kind        the format, as rdflib names it
    language    of names without one, where a concept has no other name in it; None: it is not
                known
    first_name  whether of two prefLabels of a concept in a language the first one is its name, and
                the other one an altLabel; otherwise they are an error

    Resources without a type that have a prefLabel are concepts, too, and follow them: a finding of
    the file counts them. What is wrong with names of other resources does not matter.

    names       skos:prefLabel, or the skosxl:literalForm of a skosxl:prefLabel; in a language that
                has neither, rdfs:label
    others      skos:altLabel and skos:hiddenLabel, and the same of skosxl
    notation    the first skos:notation
    broader     by skos:broader of the concept, or skos:narrower of the other one
    related     by skos:related of either concept
    deprecated  by owl:deprecated true

    Raises BadData for a file that does not parse, that has no concept, or that has two different
    prefLabels of a concept in a language, or a name in what is no language. Memory: the bytes of
    the file, and the properties above of each concept.
    """
    concepts = _Concepts(file, language, first_name=first_name)
    _parse(file, b"".join(file.blocks()), kind, concepts.add)
    subjects = list(concepts.subjects())
    if not subjects:
        raise file.fault(None, "expected resources of type skos:Concept, found none")
    untyped = [subject.uri for subject in subjects if subject.uri not in concepts.typed]
    if untyped:
        file.findings.append(
            WORKFLOW_FINDINGS["concepts-without-type"].about(
                n=len(untyped), n_concepts=len(subjects), uri=untyped[0]
            )
        )
    return subjects


def _parse(file: DataFile, data: bytes, kind: str, add: Callable[[Any, Any, Any], None]) -> None:
    """Parse RDF, and call `add` with each triple; the triples are not stored.

    Raises BadData.
    """
    from rdflib import Graph
    from rdflib.store import Store

    class TripleStore(Store):
        """A store of rdflib that passes each triple to `add` of `_parse`.

        A graph of rdflib would hold all triples: gigabytes for a million concepts.
        """

        context_aware = formula_aware = True  # the parser of Turtle requires both of its store

        def add(self, triple: Any, context: Any, quoted: bool = False) -> None:
            add(*triple)

        def bind(self, prefix: str, namespace: Any, override: bool = True) -> None:
            """Ignore a prefix: the parser itself remembers those that it needs."""

    if kind == "xml":
        check_entities(file, data)
        data = _BAD_LANGUAGE.sub(
            lambda match: match[1] + f"{_QUOTED_LANGUAGE}{match[2].hex()}".encode(), data
        )
    else:
        check_literals(file, data)
    try:
        Graph(store=TripleStore()).parse(io.BytesIO(data), format=kind, publicID=_BASE)
    except (BadData, MemoryError):
        raise
    except Exception as error:  # rdflib raises a dozen classes without a common base
        raise file.fault(
            None,
            f"expected RDF ({kind}), found what does not parse: "
            f"{' '.join(str(error).split())[:200] or type(error).__name__}",
        ) from None


class _Concepts:
    """The properties of concepts, collected from triples that come in any order.

    typed  the URIs of those that have the type skos:Concept
    """

    def __init__(self, file: DataFile, language: str | None, *, first_name: bool) -> None:
        self._file = file
        self._language = language
        self._first_name = first_name
        self.typed: dict[str, None] = {}
        self._other_types: set[str] = set()
        self._name_faults: dict[str, str] = {}
        self._names: dict[str, dict[str, str]] = defaultdict(dict)
        self._other_names: dict[str, dict[tuple[str, bool, str], None]] = defaultdict(dict)
        self._label_resources: dict[str, list[tuple[str, str]]] = defaultdict(list)
        self._forms: dict[str, list[Any]] = defaultdict(list)
        self._labels: dict[str, dict[str, str]] = defaultdict(dict)
        self._notations: dict[str, str] = {}
        self._broader: dict[str, list[str]] = defaultdict(list)
        self._related: dict[str, list[str]] = defaultdict(list)
        self._deprecated: set[str] = set()
        self._readers: dict[str, Callable[[str, Any], None]] = {
            _TYPE: self._add_type,
            _LABEL: self._add_label,
            f"{_SKOSXL}literalForm": lambda subject, form: self._forms[subject].append(form),
            f"{_SKOS}notation": self._add_notation,
            f"{_SKOS}broader": lambda subject, other: self._broader[subject].append(str(other)),
            f"{_SKOS}narrower": lambda subject, other: self._broader[str(other)].append(subject),
            f"{_SKOS}related": lambda subject, other: self._add_related(subject, str(other)),
            _DEPRECATED: self._add_deprecated,
        }
        for kind in _KINDS:
            self._readers[f"{_SKOS}{kind}"] = partial(self._add_name, kind)
            self._readers[f"{_SKOSXL}{kind}"] = partial(self._add_label_resource, kind)

    def add(self, subject: Any, predicate: Any, value: Any) -> None:
        """Add a triple, if its predicate is one that is read. Raises BadData."""
        read = self._readers.get(str(predicate))
        if read is not None:
            read(str(subject), value)

    def subjects(self) -> Iterator[Subject]:
        """Yield each concept with its properties, after all triples were added. Raises BadData."""
        for uri, resources in self._label_resources.items():
            for kind, resource in resources:
                for form in self._forms.get(resource, ()):
                    self._add_name(kind, uri, form)
        # the name of a blank node has no colon: it is no URI, and nothing can refer to it
        for uri in {**self.typed, **dict.fromkeys(uri for uri in self._names if ":" in uri)}:
            if uri not in self.typed and (uri in self._other_types or uri.startswith(_BASE)):
                continue
            if uri in self._name_faults:
                raise self._file.fault(None, f"<{uri[:120]}>: {self._name_faults[uri]}")
            names = {**self._labels.get(uri, {}), **self._names.get(uri, {})}
            if self._language and self._language not in names and UNDETERMINED in names:
                names[self._language] = names.pop(UNDETERMINED)
            yield Subject(
                uri=uri,
                notation=self._notations.get(uri),
                names=names,
                broader=self._broader.get(uri, ()),
                related=self._related.get(uri, ()),
                other_names=list(self._other_names.get(uri, ())),
                deprecated=uri in self._deprecated,
            )

    def _add_type(self, subject: str, kind: Any) -> None:
        if str(kind) == f"{_SKOS}Concept":
            if subject.startswith(_BASE):
                raise self._file.fault(
                    None, f"expected absolute URIs, found {subject[len(_BASE) :][:80]!r}"
                )
            self.typed[subject] = None
        else:
            self._other_types.add(subject)

    def _add_name(self, kind: str, subject: str, value: Any) -> None:
        """Add a name of a concept; `kind` is one of _KINDS.

        An altLabel or hiddenLabel that is no text is ignored, because nothing refers to it; a
        prefLabel must be a text.
        """
        language, name = _literal(value)
        if kind != _KINDS[0]:
            if name and self._is_name(subject, value):
                self._other_names[subject][language, kind == _KINDS[2], name] = None
        elif self._is_name(subject, value):
            first_name = self._names[subject].setdefault(language, name)
            if first_name != name and self._first_name:
                self._other_names[subject][language, False, name] = None
            elif first_name != name:
                self._name_faults.setdefault(
                    subject,
                    f"expected one skos:prefLabel in {language!r}, found {first_name[:60]!r} and "
                    f"{name[:60]!r}: --first-name takes the first one",
                )

    def _add_label_resource(self, kind: str, subject: str, value: Any) -> None:
        self._label_resources[subject].append((kind, str(value)))

    def _add_label(self, subject: str, value: Any) -> None:
        if self._is_name(subject, value):
            self._labels[subject].setdefault(*_literal(value))

    def _add_notation(self, subject: str, value: Any) -> None:
        notation = tidy(str(value))
        if notation:
            self._notations.setdefault(subject, notation)

    def _add_related(self, subject: str, other: str) -> None:
        self._related[subject].append(other)
        self._related[other].append(subject)

    def _add_deprecated(self, subject: str, value: Any) -> None:
        if str(value).lower() in ("true", "1"):
            self._deprecated.add(subject)

    def _is_name(self, subject: str, value: Any) -> bool:
        """Return whether a value is a literal with a text and a language; note the fault if not."""
        language, name = _literal(value)
        is_name = bool(name) and is_language(language)
        if not is_name:
            self._name_faults.setdefault(
                subject, f"expected a name in a language, found {str(value)[:60]!r} in {language!r}"
            )
        return is_name


def _literal(value: Any) -> tuple[str, str]:
    """Return the language and the text of a literal; for another value the text is empty."""
    language = str(getattr(value, "language", None) or UNDETERMINED).lower()
    if language.startswith(_QUOTED_LANGUAGE):
        language = bytes.fromhex(language.removeprefix(_QUOTED_LANGUAGE)).decode(errors="replace")
    return language, tidy(str(value)) if hasattr(value, "language") else ""
