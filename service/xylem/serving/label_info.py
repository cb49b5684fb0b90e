"""Serve label info: find a version's labels in its model's vocabulary, and describe them."""

import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from xylem.base import BadInput, UnsupportedOption, log, public_message_of
from xylem.engine import Branch, label_ids
from xylem.serving.batches.lines import dump
from xylem.serving.dialects.predict.schema import InfoQuery
from xylem_store import (
    I32,
    I64,
    NAME,
    NOTATION,
    OTHER_NAME,
    U8,
    UNDETERMINED,
    URI,
    Bools,
    LabelInfo,
    NameTable,
    Store,
    StoreError,
    find_all,
    find_names,
    is_language,
    names_with,
)

# What stands for all other languages in an order of languages, as `fi,sv,*`.
ANY_LANGUAGE = "*"

# The most subjects above a label that an explanation has.
PATH_MAX = 32


class LabelFacts(NamedTuple):
    """The label info of one version.

    subjects  int32[K]: the subject of each label in `info`, -1 for a label without one
    allowed   uint8[K]: 0 for deprecated labels; None if no label is deprecated
    """

    info: LabelInfo
    subjects: I32
    allowed: U8 | None = None

    def name(self, label: int, languages: Sequence[str]) -> str | None:
        """Return a label's name in the first of some languages that has one, or None."""
        return self._subject_name(int(self.subjects[label]), languages)

    def _subject_name(self, subject: int, languages: Sequence[str]) -> str | None:
        """Return the name of a subject, or None; of -1, which is no subject, too."""
        names = (self.info.text(NAME + language, subject) for language in languages)
        return None if subject < 0 else next(filter(None, names), None)

    def languages_in(self, order: str | None, error: type[BadInput] = BadInput) -> tuple[str, ...]:
        """Return the languages that an order of them names: the first that has a name counts.

        order  languages with commas between them, as `fi,sv,*`; a single language is followed by
               all others. None: the default language, then all others

        ANY_LANGUAGE stands for all others: names without a language, the default language of the
        label info, then its other languages in their order. Languages that the label info does not
        have are left out. Raises `error` if it has none of them, and for what is no language.
        """
        head = self.info.head
        tags = [
            tag.strip()
            for tag in (head.language or ANY_LANGUAGE if order is None else order)
            .lower()
            .split(",")
        ]
        is_wrong = any(tag != ANY_LANGUAGE and not is_language(tag) for tag in tags)
        if is_wrong or not {ANY_LANGUAGE, *head.languages}.intersection(tags):
            available = ", ".join(head.languages) or "none: its subjects have no names"
            raise error(
                f"expected a language of the label info ({available}), found {order!r:.42}"
            ).with_path("language")
        if len(tags) == 1:
            tags.append(ANY_LANGUAGE)
        any_language = UNDETERMINED, head.language, *head.languages
        languages = (
            language
            for tag in tags
            for language in (any_language if tag == ANY_LANGUAGE else (tag,))
        )
        return tuple(
            language for language in dict.fromkeys(languages) if language in head.languages
        )

    def names(self, label: int) -> dict[str, str]:
        """Return a label's names by language."""
        subject = int(self.subjects[label])
        return {} if subject < 0 else self.info.names(subject)

    def broader_path(
        self, label: int, languages: Sequence[str] | None
    ) -> list[dict[str, str | None]]:
        """Return the URIs and names of the subjects above a label, from the top down.

        languages  of the names; None: the default language, then any

        Of several broader subjects the first counts. Circles end, and a path has at most PATH_MAX
        subjects.
        """
        languages = self.languages_in(None) if languages is None else languages
        path = [int(self.subjects[label])]
        while path[-1] >= 0 and len(path) <= PATH_MAX + 1:
            broader = self.info.above(path[-1])
            path.append(broader[0] if broader and broader[0] not in path else -1)
        return [
            {"uri": self.info.text(URI, subject), "name": self._subject_name(subject, languages)}
            for subject in path[-2:0:-1]
        ]

    def text(self, label: int, column: str) -> str | None:
        """Return the text of a label in a column; None if it has none."""
        subject = int(self.subjects[label])
        return None if subject < 0 else self.info.text(column, subject)

    def broader(self, label: int) -> list[str]:
        """Return the URIs of the subjects directly above a label's subject."""
        subject = int(self.subjects[label])
        above = [] if subject < 0 else self.info.above(subject)
        return [
            uri
            for broader_subject in above
            if (uri := self.info.text(URI, broader_subject)) is not None
        ]


class LiveLabelInfo:
    """The current label info of one version; readers see `current` replaced by one assignment.

    labels   the names of the version's labels
    current  None: the model has no label info
    """

    def __init__(self, model: str, labels: NameTable) -> None:
        self.model = model
        self.labels = labels
        self.current: LabelFacts | None = None
        self._by_uri: tuple[LabelFacts | None, dict[str, int]] = None, {}

    def label_ids(
        self,
        items: Sequence[str | Branch],
        place: Callable[[int], str],
        allowed: U8 | None = None,
    ) -> tuple[I32, I64]:
        """Return the labels that items of a list mean, as `xylem.engine.label_ids` does."""
        facts = self.current
        return label_ids(self.labels, items, place, facts and facts.info, allowed)

    def searches(self, items: Sequence[str | Branch]) -> bool:
        """Return whether the label info is searched for items, because some are no labels."""
        if self.current is None:
            return False
        names = [item for item in items if isinstance(item, str)]
        return len(names) < len(items) or bool((find_all(self.labels, names) < 0).any())

    def label_of_uri(self, uri: str) -> int | None:
        """Return the label that has a URI. The first call builds a table, at 1 us a label."""
        facts = self.current
        if self._by_uri[0] is not facts and facts is not None:
            uris = ((facts.text(label, URI), label) for label in range(len(facts.subjects)))
            self._by_uri = facts, {subject_uri: label for subject_uri, label in uris if subject_uri}
        return None if facts is None else self._by_uri[1].get(uri)

    def follow(self, info: LabelInfo | None) -> None:
        """Serve other label info, or none, from now on. Takes about 0.1 microseconds a label."""
        if info is None:
            self.current = None
            return
        subjects = find_names(info.keys, self.labels.utf8, self.labels.offsets)
        self.current = LabelFacts(info, subjects, info.allowed(subjects))


class LabelInfos:
    """The label info of the open versions, each mapped once for all versions of a model.

    It is unmapped with the last open version of its model. Thread-safe.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._live: weakref.WeakSet[LiveLabelInfo] = weakref.WeakSet()

    def follow(self, live: LiveLabelInfo) -> LiveLabelInfo:
        """Keep the label info of a version up to date, and return it. Blocking. Never raises."""
        with self._lock:
            live.follow(self._read(live.model, self._served_info(live.model))[0])
            self._live.add(live)
        return live

    def refresh(self) -> dict[str, str]:
        """Serve the label info that the store has now, if it was replaced. Reads the disk.

        Returns the reasons, by model, for label info that cannot be used; the previous one is still
        served.
        """
        faults = {}
        with self._lock:
            served = list(self._live)
            for model in sorted({live.model for live in served}):
                previous_info = self._served_info(model)
                info, fault = self._read(model, previous_info)
                if fault is not None:
                    faults[model] = fault
                if info is not previous_info:
                    log(logging.INFO, "label_info_replaced", model=model)
                    for live in served:
                        if live.model == model:
                            live.follow(info)
        return faults

    def _served_info(self, model: str) -> LabelInfo | None:
        """Return the label info that open versions of a model have; None if they have none."""
        facts = (live.current for live in list(self._live) if live.model == model)
        return next((current.info for current in facts if current is not None), None)

    def _read(
        self, model: str, previous_info: LabelInfo | None
    ) -> tuple[LabelInfo | None, str | None]:
        """Return the label info of a model, read if it changed, and why it cannot be used, or None.

        If it cannot be used, the previous one is returned.
        """
        try:
            head = self._store.label_info_head(model)
            if head is None or (previous_info is not None and head == previous_info.head):
                return None if head is None else previous_info, None
            return self._store.label_info(model), None
        except (StoreError, OSError) as error:
            log(logging.ERROR, "label_info_failed", model=model, detail=str(error), error=error)
            return previous_info, public_message_of(error)


class LabelInfoOptions(NamedTuple):
    """The label info that a request asks for.

    facts      the label info of the version
    languages  names in the first of these that has one; None: not asked for
    in_full    whether it asks for names in all languages, and the subjects above
    """

    facts: LabelFacts
    languages: tuple[str, ...] | None
    in_full: bool


def label_info_options(query: InfoQuery, live: LiveLabelInfo) -> LabelInfoOptions | None:
    """Return the label info that a request asks for, as it is now; None if it asks for none.

    Raises UnsupportedOption for a model without label info, and for languages of which it has none.
    """
    language = query.language
    if language is None and not query.label_info:
        return None
    facts = live.current
    if facts is None:
        raise UnsupportedOption(
            "expected a model with label info, found none: call xylem models label-info "
            f"{live.model} FILE"
        ).with_path("label_info" if language is None else "language")
    return LabelInfoOptions(
        facts,
        None if language is None else facts.languages_in(language, UnsupportedOption),
        query.label_info,
    )


def languages_of(facts: LabelFacts | None) -> tuple[tuple[str, ...], str]:
    """Return the languages of a version's label names, and the default language of requests."""
    if facts is None:
        return (), UNDETERMINED
    return facts.info.head.languages, facts.info.head.language or UNDETERMINED


def members_of(options: LabelInfoOptions, labels: I32) -> list[bytes]:
    """Return the label info of each label as JSON members: an object without its braces."""
    members_by_label = {
        label: dump(label_description(options, label))[1:-1] for label in set(labels.tolist())
    }
    return [members_by_label[label] for label in labels.tolist()]


def label_description(options: LabelInfoOptions, label: int) -> dict[str, Any]:
    """Return the label info of one label, ready for JSON."""
    facts = options.facts
    members: dict[str, Any] = {
        "uri": facts.text(label, URI),
        "notation": facts.text(label, NOTATION),
    }
    if options.languages is not None:
        members["name"] = facts.name(label, options.languages)
    if options.in_full:
        members["names"], members["broader"] = facts.names(label), facts.broader(label)
    return members


def labels_with_name_part(options: LabelInfoOptions, part: str) -> Bools:
    """Return bool[K]: the labels with `part` in a name, in capitals or not.

    The search covers the name of a label in the first language of the options that has one, as
    answers have it, and the other names (synonyms) in that language, which answers do not contain.
    If the options ask for all languages, it covers all of them.
    """
    info = options.facts.info
    matches = np.zeros(info.head.n_subjects, np.bool_)
    is_unnamed = np.ones(info.head.n_subjects, np.bool_)
    for language in info.head.languages if options.in_full else options.languages or ():
        for column in (f"{NAME}{language}", f"{OTHER_NAME}{language}"):
            if column in info.head.columns and is_unnamed.any():
                matches |= is_unnamed & names_with(info.texts(column), info.utf8, part)
        if not options.in_full:
            is_unnamed &= np.diff(info.texts(f"{NAME}{language}")) == 0
    return np.asarray(np.append(matches, False)[options.facts.subjects])
