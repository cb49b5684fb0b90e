"""The concepts of a vocabulary, which can be a model's labels, with their names and neighbours."""

from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from xylem.base import BadData, BadParameter, Finding, offsets
from xylem.datasets import DataFile, read_subjects
from xylem.vocabulary.trie import Lists
from xylem_store import I32, NAME, NOTATION, U8, UNDETERMINED, URI, Subject, is_language

# Kinds of names, as in SKOS; if two names are the same words, the kind that comes first counts.
PREFERRED = 0
ALTERNATIVE = 1
HIDDEN = 2

# A concept has at most this many broader concepts, and this many related ones: the first count.
NEIGHBOURS_MAX = 64

CONCEPTS_MAX = 1 << 26


class Concepts(NamedTuple):
    """n concepts, identified by their numbers, and their m names.

    keys      n keys: what the labels of data are, URIs, notations or names
    texts     m names; a concept has any number of them
    owners    int32[m]  the concept of each name
    kinds     uint8[m]  PREFERRED, ALTERNATIVE or HIDDEN
    broader   the concepts above each concept, ascending, without itself, at most NEIGHBOURS_MAX;
              there may be cycles
    related   the concepts beside each concept, in the same form
    retired   keys of deprecated concepts, which are not among the n: such labels are never
              suggested
    findings  on their file
    """

    keys: list[str]
    texts: list[str]
    owners: I32
    kinds: U8
    broader: Lists
    related: Lists
    retired: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = ()

    def placed(self, labels: Sequence[str]) -> Self:
        """Return the same concepts, numbered by their positions in `labels`.

        A label that is not a concept has no names and no neighbours. Raises BadData for a concept
        whose key `labels` lacks.
        """
        place = {label: i for i, label in enumerate(labels)}
        missing_key = next((key for key in self.keys if key not in place), None)
        if missing_key is not None:
            raise BadData(
                f"expected a label for every concept, found no label {missing_key[:120]!r}"
            )
        places = np.array([place[key] for key in self.keys], np.int32)
        broader, related = (
            _renumber_links(links, places, len(labels)) for links in (self.broader, self.related)
        )
        return self._replace(
            keys=list(labels), owners=places[self.owners], broader=broader, related=related
        )


def read_concepts(
    path: Path,
    language: str | None = None,
    key_kind: str = URI,
    *,
    first_name: bool = False,
    added: Sequence[Subject] = (),
) -> Concepts:
    """Return the concepts of a vocabulary file, with their names in a language.

    language  of the names, as "fi"; names without a language count too. None: all names. The names
              of a .tsv file are taken to be in this language.
    key_kind  what the labels of data are: "uri", "notation", or a language, in which they are the
              names
    first_name  as `read_subjects` takes it
    added     as `with_added` takes them

    Deprecated concepts and concepts without a key are left out. Raises BadData, naming the file, if
    no concept is left, a key occurs twice or no name is in the language. Raises BadParameter for
    what is not a language.
    """
    for option, tag in (("language", language), ("by", key_kind)):
        if tag is not None and not is_language(tag):
            raise BadParameter(f"{option}: expected a language, as en or pt-br, found {tag[:40]!r}")
    file = DataFile(path)
    try:
        subjects = read_subjects(file, language, first_name=first_name).subjects
        return concepts_of(with_added(subjects, added, key_kind), language, key_kind)._replace(
            findings=tuple(file.findings)
        )
    except ValueError as error:
        raise file.fault(None, str(error)) from None


def with_added(
    subjects: Sequence[Subject], added: Sequence[Subject], key_kind: str
) -> list[Subject]:
    """Return subjects of a file, and those of `added` whose keys the file does not have.

    added  subjects which name those above them by their keys
    """
    uris = {_key(subject, key_kind): subject.uri for subject in subjects}
    return [
        *subjects,
        *(
            subject._replace(broader=[uris.get(key, key) for key in subject.broader])
            for subject in added
            if _key(subject, key_kind) not in uris
        ),
    ]


def concepts_of(
    subjects: Sequence[Subject], language: str | None = None, key_kind: str = URI
) -> Concepts:
    """Return the concepts of subjects that have been read, as `read_concepts` does.

    Raises ValueError where `read_concepts` raises BadData.
    """
    current = [
        (key, subject)
        for subject in subjects
        if not subject.deprecated and (key := _key(subject, key_kind))
    ]
    if not 1 <= len(current) <= CONCEPTS_MAX:
        raise ValueError(
            f"expected 1 to {CONCEPTS_MAX} concepts with {key_kind}, found {len(current)}"
        )
    keys = [key for key, _ in current]
    distinct_keys: set[str] = set()
    for key in keys:
        if key in distinct_keys:
            raise ValueError(f"expected distinct {key_kind} keys, found {key[:120]!r} twice")
        distinct_keys.add(key)
    texts: list[str] = []
    owners = array("i")
    kinds = array("B")
    for i, (_, subject) in enumerate(current):
        tagged_names = [(tag, PREFERRED, name) for tag, name in subject.names.items()]
        tagged_names += [
            (tag, HIDDEN if is_hidden else ALTERNATIVE, name)
            for tag, is_hidden, name in subject.other_names
        ]
        for tag, kind, name in tagged_names:
            if language is None or tag in (language, UNDETERMINED):
                texts.append(name)
                owners.append(i)
                kinds.append(kind)
    if not texts:
        tags = sorted({tag for _, subject in current for tag in subject.names})
        raise ValueError(f"expected names in {language}, found {', '.join(tags[:10]) or 'none'}")
    place = {subject.uri: i for i, (_, subject) in enumerate(current)}
    return Concepts(
        keys=keys,
        texts=texts,
        owners=np.frombuffer(owners, np.int32).copy(),
        kinds=np.frombuffer(kinds, np.uint8).copy(),
        broader=_links(
            (place[uri] for uri in subject.broader if uri in place) for _, subject in current
        ),
        related=_links(
            (place[uri] for uri in subject.related if uri in place) for _, subject in current
        ),
        retired=frozenset(_key(subject, key_kind) for subject in subjects if subject.deprecated)
        - distinct_keys,
    )


def _key(subject: Subject, key_kind: str) -> str:
    if key_kind == URI:
        return subject.uri
    return (
        subject.notation or ""
        if key_kind == NOTATION
        else subject.names.get(key_kind.removeprefix(NAME), "")
    )


def _links(links_of_concepts: Iterable[Iterable[int]]) -> Lists:
    """Return the distinct links of each concept, at most NEIGHBOURS_MAX, none to itself."""
    sizes = []
    ids = array("i")
    for i, neighbours in enumerate(links_of_concepts):
        distinct = sorted({other for other in neighbours if other != i})[:NEIGHBOURS_MAX]
        sizes.append(len(distinct))
        ids.extend(distinct)
    return Lists(offsets(np.array(sizes, np.int64)), np.frombuffer(ids, np.int32).copy())


def _renumber_links(links: Lists, places: I32, n: int) -> Lists:
    """Return the links of n concepts, after concept i has got the number places[i]."""
    neighbours: list[list[int]] = [[] for _ in range(n)]
    for i, new_id in enumerate(places.tolist()):
        neighbours[new_id] = places[links.ids[links.ptr[i] : links.ptr[i + 1]]].tolist()
    return _links(neighbours)
