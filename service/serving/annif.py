"""Annif's door: texts and options -> suggestions of subjects, by the search of predict."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from model_store.label_info import NOTATION, URI
from model_store.names import name_of
from service.errors import BadRequest, LimitExceeded
from service.inference.answering import Predictions
from service.serving.label_info import LabelFacts, check_language, languages_of
from service.serving.parse import parse_body, split_fields, validated
from service.serving.rows import to_options, to_rows
from service.serving.schemas.annif import SuggestBatchRequest, SuggestForm, Suggestion, SuggestOptions
from service.serving.schemas.instances import TextInstance
from service.serving.schemas.limits import limit_fault
from service.serving.schemas.predict import Options
from service.serving.served import ServedVersion
from service.settings import Limits
from service.stages import FEATURES, QUEUE, READ, SEARCH, WRITE, StageNotes

FIELDS_MAX = 256
"""Fields of a form: metadata may be any number of them."""


def parse_form(body: bytes, limits: Limits) -> SuggestForm:
    """Return what a form says. Raises BadRequest and LimitExceeded, naming the field."""
    return validated(split_fields(body, "a form", FIELDS_MAX), SuggestForm, limits)


def parse_suggest_options(query_string: bytes, limits: Limits) -> SuggestOptions:
    """Return what the query string of a batch says. Raises as `parse_form`."""
    fields = split_fields(query_string, "a query string", FIELDS_MAX)
    return validated(fields, SuggestOptions, limits)


def parse_documents(body: bytes, limits: Limits) -> SuggestBatchRequest:
    """Return the documents of a batch. Raises as `parse_form`, and MalformedJson."""
    return parse_body(body, SuggestBatchRequest, limits)


def suggest_form(
    body: bytes,
    served: ServedVersion,
    limits: Limits,
    stop: NDArray[np.uint8] | None = None,
    notes: StageNotes | None = None,
) -> list[Suggestion]:
    """Return the subjects of a form's text. Blocking: to read a form of 8 MB takes more than a second.

    Raises as `parse_form` and `suggest`.
    """
    notes = notes or StageNotes()
    notes.end(QUEUE)
    form = parse_form(body, limits)
    notes.end(READ)
    (found,) = _suggest([form.text], form, served, limits, stop, notes)
    return found


def suggest(
    texts: list[str],
    options: SuggestOptions,
    served: ServedVersion,
    limits: Limits,
    stop: NDArray[np.uint8] | None = None,
    notes: StageNotes | None = None,
) -> list[list[Suggestion]]:
    """Return the subjects of each text, the best first; once `stop` is set, what is sure. Blocking.

    notes   where it is noted when the stages end; the wait for this thread is the first

    Raises LimitExceeded, BadInstance for a model that takes no texts, and BadRequest for a language that the
    label info does not have.
    """
    notes = notes or StageNotes()
    notes.end(QUEUE)
    return _suggest(texts, options, served, limits, stop, notes)


def _suggest(
    texts: list[str],
    options: SuggestOptions,
    served: ServedVersion,
    limits: Limits,
    stop: NDArray[np.uint8] | None,
    notes: StageNotes,
) -> list[list[Suggestion]]:
    facts = served.info.current
    language = _language(facts, options)
    n_labels = len(texts) * options.limit
    fault = limit_fault(n_labels, "subjects asked for", "answer_labels_max", limits)
    if fault is not None:
        raise LimitExceeded(fault).at("limit")
    if not texts or not options.limit:
        return [[] for _ in texts]
    rows = to_rows([TextInstance(text=text) for text in texts], served.featurizer)
    notes.end(FEATURES)
    found = served.predictor.predict(rows, to_options(_options(options), served, stop))
    notes.end(SEARCH)
    suggestions = [
        _suggestions(found, start, end, served, facts, language)
        for start, end in pairwise(found.ptr.tolist())
    ]
    notes.end(WRITE)
    return suggestions


def _options(options: SuggestOptions) -> Options:
    """Return the options of predict: any score passes 0, and so no threshold is asked for."""
    return Options(top_r=max(1, options.limit), threshold=options.threshold or None)


def _language(facts: LabelFacts | None, options: SuggestOptions) -> str:
    if options.language is None:
        return languages_of(facts).default
    if facts is None:
        raise BadRequest(
            f"expected no language: the model has no label info, found {options.language[:40]!r}"
        ).at("language")
    check_language(facts, options.language, BadRequest)
    return options.language.lower()


def _suggestions(
    found: Predictions, start: int, end: int, served: ServedVersion, facts: LabelFacts | None, language: str
) -> list[Suggestion]:
    """Return the subjects of one row."""
    suggestions: list[Suggestion] = []
    for label, score in zip(found.labels[start:end].tolist(), found.scores[start:end], strict=True):
        name = name_of(served.labels, label)
        uri = name_told = notation = None
        if facts is not None:
            uri, notation = facts.text(label, URI), facts.text(label, NOTATION)
            name_told = facts.any_name(label, language)
        suggestions.append(
            {"uri": uri or name, "label": name_told or name, "notation": notation, "score": score}
        )
    return suggestions
