"""Annif's REST API: suggest subjects for texts, by the same search that predict uses."""

import hashlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from xylem.base import (
    ENCODE,
    FEATURES,
    QUEUE,
    READ,
    SEARCH,
    WRITE,
    BadInstance,
    BadRequest,
    Limits,
    StageTimings,
    UnknownLabel,
)
from xylem.serving.batches.lines import dump
from xylem.serving.dialects.annif.schema import (
    DocumentSuggestions,
    LearnDocuments,
    LearnSubject,
    SuggestBatchRequest,
    SuggestForm,
    Suggestion,
    Suggestions,
    SuggestOptions,
)
from xylem.serving.dialects.dialect import Body, Dialect, Longer, Reply
from xylem.serving.dialects.predict.schema import Options
from xylem.serving.feedback.schema import FeedbackLineResult
from xylem.serving.live.served import ServedVersion
from xylem.serving.parse import parse_body, split_fields, validated
from xylem.serving.rows import to_options, to_rows
from xylem.serving.schemas.fields import TextInstance, refuse_beyond
from xylem_store import NOTATION, U8, URI, find_all, name_of

# the content type of HTML forms, which clients of Annif send too
_FORM = frozenset({b"application/x-www-form-urlencoded"})

# The most fields of a form or a query string. Annif allows any number of metadata fields.
FIELDS_MAX = 256


class _Query(NamedTuple):
    """The texts of a request, the options of the search, and a function that builds the answer.

    answer  builds the answer, ready for JSON, from the suggestions for each text
    """

    texts: list[str]
    options: SuggestOptions
    answer: Callable[[list[list[Suggestion]]], object]


class _SuggestDialect(Dialect[_Query]):
    """Reads and answers requests for the subjects of texts."""

    def answer_read(
        self, query: _Query, served: ServedVersion, limits: Limits, timings: StageTimings
    ) -> Reply | Longer:
        """Answer in a thread, as `Dialect.answer_read` describes. Raises as `suggest`."""
        timings.end(READ)

        def answer(stop: U8) -> Reply:
            timings.end(QUEUE)
            suggestions = suggest(query.texts, query.options, served, limits, stop, timings)
            return Reply((dump(query.answer(suggestions)),), len(query.texts))

        return Longer(answer)


class FormDialect(_SuggestDialect):
    """Reads a request with one text: a form."""

    media = _FORM

    def read(self, body: Body, limits: Limits) -> _Query:
        """Read the text and the options from a form."""
        form = validated(split_fields(body.content, "a form", FIELDS_MAX), SuggestForm, limits)
        return _Query([form.text], form, lambda suggestions: Suggestions(results=suggestions[0]))


class DocumentsDialect(_SuggestDialect):
    """Reads a request with several documents: a JSON body, with the options in the query string."""

    def read(self, body: Body, limits: Limits) -> _Query:
        """Read the options from the query string, and the documents from the body."""
        options = validated(
            split_fields(
                (body.header_or_query or "").encode("latin-1"), "a query string", FIELDS_MAX
            ),
            SuggestOptions,
            limits,
        )
        documents = parse_body(body.content, SuggestBatchRequest, limits).documents

        def answer(suggestions: list[list[Suggestion]]) -> object:
            return [
                DocumentSuggestions(results=results, document_id=document.document_id)
                for results, document in zip(suggestions, documents, strict=True)
            ]

        return _Query([document.text for document in documents], options, answer)


SUGGESTIONS = FormDialect()
BATCH_SUGGESTIONS = DocumentsDialect()


def suggest(
    texts: list[str],
    options: SuggestOptions,
    served: ServedVersion,
    limits: Limits,
    stop: U8,
    timings: StageTimings,
) -> list[list[Suggestion]]:
    """Return the suggested subjects of each text, the best first. Blocking.

    When `stop` is set, the search ends early and returns only the labels that are certain by then.

    Raises LimitExceeded, BadInstance for a model that takes no texts, and BadRequest for languages
    of which the label info has none.
    """
    facts = served.info.current
    if facts is None and options.language is not None:
        raise BadRequest(
            f"expected no language: the model has no label info, found {options.language[:40]!r}"
        ).with_path("language")
    languages = () if facts is None else facts.languages_in(options.language, BadRequest)
    refuse_beyond(
        len(texts) * options.limit, "subjects asked for", "answer_labels_max", limits, "limit"
    )
    if not texts or not options.limit:
        return [[] for _ in texts]
    rows = to_rows([TextInstance(text=text) for text in texts], served.featurizer)
    timings.end(ENCODE if served.featurizer.encoders else FEATURES)
    # every score reaches a threshold of 0, so 0 becomes None, which needs no exact search
    predictions = served.predictor.predict(
        rows,
        to_options(Options(top_r=options.limit, threshold=options.threshold or None), served, stop),
    )
    timings.end(SEARCH)
    suggestions: list[list[Suggestion]] = [[] for _ in texts]
    for text_suggestions, (start, end) in zip(
        suggestions, pairwise(predictions.ptr.tolist()), strict=True
    ):
        for label, score in zip(
            predictions.labels[start:end].tolist(), predictions.scores[start:end], strict=True
        ):
            name = name_of(served.labels, label)
            text_suggestions.append(
                {
                    "uri": (facts and facts.text(label, URI)) or name,
                    "label": (facts and facts.name(label, languages)) or name,
                    "notation": facts and facts.text(label, NOTATION),
                    "score": score,
                }
            )
    timings.end(WRITE)
    return suggestions


def events_of(body: bytes, served: ServedVersion, limits: Limits) -> list[dict[str, Any]]:
    """Convert documents to learn from into events of feedback. Blocking.

    The id of an event is a digest of the text and its subjects, so a document that is sent twice is
    counted once. Raises BadInput, and UnknownLabel for a subject that the model does not have.
    """
    events = []
    for i, document in enumerate(parse_body(body, LearnDocuments, limits).root):
        labels = [
            _label_of(subject, served, f"[{i}].subjects[{j}]")
            for j, subject in enumerate(document.subjects)
        ]
        digest = hashlib.sha256(dump([document.text, sorted(set(labels))])).hexdigest()
        events.append(
            {
                "event_id": f"annif-{digest}",
                "instance": {"text": document.text},
                "labels": labels,
            }
        )
    return events


def refuse_rejected(verdicts: Sequence[FeedbackLineResult]) -> None:
    """Raise BadInstance for the first document whose event was rejected."""
    for i, verdict in enumerate(verdicts):
        if verdict["result"] == "rejected":
            raise BadInstance(verdict.get("detail", "")).with_path(f"[{i}]")


def _label_of(subject: LearnSubject, served: ServedVersion, path: str) -> str:
    """Return the name of the label that a subject stands for.

    The label is looked up by the subject's URI and label among the model's label names, then by the
    URI in the label info.
    """
    names = [name for name in (subject.uri, subject.label) if name]
    for name, label in zip(names, find_all(served.labels, names).tolist(), strict=True):
        if label >= 0:
            return name
    label_id = None if subject.uri is None else served.info.label_of_uri(subject.uri)
    if label_id is None:
        raise UnknownLabel(
            f"expected subjects of the model, found {' '.join(names)[:80]!r}"
        ).with_path(path)
    return name_of(served.labels, label_id)
