"""A predict request that has been read -> its answer as JSON: at once if it is short, else in a thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.features.sparse_request import NO_THRESHOLD, NUMBER, BodyForms, SparseQuery
from service.features.sparse_request import TUNED as TUNED_KIND
from service.inference.sparse_answers import SparseForms, SparseLimits
from service.rows import SparseRows
from service.serving.answers import ANSWER_END, answer_head, tell_labels, write_answer, write_predictions
from service.serving.chunks import search_chunked, to_chunked_rows
from service.serving.label_info import info_asked
from service.serving.parse import parse_predict
from service.serving.rows import to_options, to_rows, unknown_rows
from service.serving.schemas.instances import AnyInstance, SparseInstance, TextInstance
from service.serving.schemas.predict import TUNED, Options, PredictRequest
from service.serving.served import ServedVersion
from service.settings import Limits
from service.stages import FEATURES, QUEUE, READ, SEARCH, WRITE, StageNotes

SHORT_BEAMS = 64
"""Rows times beam width up to which a prediction runs on the event loop: a fraction of a millisecond."""

SHORT_CHILDREN = 8192
"""Children of nodes, scored on a level of all trees, up to which it does: a flat model has many at once."""

SHORT_ITEMS = 8192
"""Characters, features and names of labels up to which it does; explained, each counts once a node told.

Where Python looks for the stems or lemmas of words, a character counts as often as the featurizer says.
"""

SHORT_NODES = 64
"""Nodes told of all labels, of the rows together, up to which an explanation does."""

LABEL_TOLD_ITEMS = 128
"""Items that a label counts whose label info is told: about 20 microseconds."""

NAME_TOLD_ITEMS = 16
"""Items that each of its names counts, where all are told: about 2 microseconds."""

MASKED_AN_ITEM = 64
"""Labels that are marked as allowed or not in the time that an item takes."""


def answer_query(
    query: PredictRequest,
    served: ServedVersion,
    stop: NDArray[np.uint8] | None = None,
    notes: StageNotes | None = None,
) -> bytes:
    """Return a request's answer as JSON, of the version that serves it; once `stop` is set, what is sure.

    notes   where it is noted when its stages end; the wait for this thread is the first
    """
    notes = notes or StageNotes()
    notes.end(QUEUE)
    chunked = to_chunked_rows(query.instances, served.featurizer, query.chunk_characters)
    notes.end(FEATURES)
    epoch = served.thresholds.epoch
    options = to_options(query, served, stop)
    info = info_asked(query, served.info)
    found = search_chunked(served.predictor.predict, chunked, options, served)
    notes.end(SEARCH)
    told = tell_labels(found, chunked.rows, served, info, explain=query.explain)
    predictions = write_predictions(found, options, epoch, served, told, chunked.unknown)
    answer = _write(predictions, epoch, served)
    notes.end(WRITE)
    return answer


class Answer(NamedTuple):
    """An answer in parts, for how many instances, and whether it is at tuned thresholds.

    n_json  how many of its bytes are JSON; None: all
    """

    parts: tuple[bytes, ...]
    n_rows: int
    is_tuned: bool
    n_json: int | None = None


def answer_now(
    message: bytes, start: int, served: ServedVersion, limits: Limits, notes: StageNotes
) -> Answer | PredictRequest:
    """Return the answer to the body message[start:], or the request that it is if that is for a thread.

    One kernel reads, searches and writes. What it does not read, the models of `service.serving.schemas`
    read, which refuse what is wrong; their rows go on by the same kernel. Event loop only. Raises BadInput.

    notes   where it is noted when the stages end that the kernel does not count
    """
    epoch, ids = served.thresholds.epoch, served.ids
    found = served.sparse.answer(message, start, ids.present(), epoch, ids.serials(SHORT_BEAMS))
    if found is not None:
        if notes.is_traced:
            notes.take_counted(served.sparse.times)
        n_rows, predictions, is_tuned = found
        head = answer_head(served.name, served.version, epoch)
        return Answer((head, predictions, ANSWER_END), n_rows, is_tuned)
    notes.begin()
    query = parse_predict(message[start:], limits)
    notes.end(READ)
    return answer_read(query, served, notes)


def answer_read(query: PredictRequest, served: ServedVersion, notes: StageNotes) -> Answer | PredictRequest:
    """Return the answer to a request that has been read, or the request if it is for a thread.

    Event loop only. Raises BadInput.
    """
    answer = answer_shortly(query, served, notes)
    return query if answer is None else Answer((answer,), len(query.instances), query.threshold == TUNED)


def answer_shortly(query: PredictRequest, served: ServedVersion, notes: StageNotes) -> bytes | None:
    """Return the answer if a thread would only delay it, else None. Event loop only."""
    if not is_short(query, served):
        return None
    rows = to_rows(query.instances, served.featurizer)
    notes.end(FEATURES)
    unknown = unknown_rows(query.instances, rows)
    answer = None if unknown else _answer_rows(query, rows, served)
    if answer is not None:
        if notes.is_traced:
            notes.take_counted(served.sparse.times)
        return answer
    epoch = served.thresholds.epoch
    options = to_options(query, served)
    info = info_asked(query, served.info)
    found = served.predictor.predict_shortly(rows, options)
    if found is None:
        return None
    notes.end(SEARCH)
    told = tell_labels(found, rows, served, info, explain=query.explain)
    answer = _write(write_predictions(found, options, epoch, served, told, unknown), epoch, served)
    notes.end(WRITE)
    return answer


def _items_told(query: Options, served: ServedVersion) -> int:
    """Return how many items a label counts by what of its label info is told."""
    facts = served.info.current
    if facts is None or not (query.label_info or query.language is not None):
        return 0
    n_names = len(facts.info.head.languages) if query.label_info else 0
    return LABEL_TOLD_ITEMS + NAME_TOLD_ITEMS * n_names


def _answer_rows(query: PredictRequest, rows: SparseRows, served: ServedVersion) -> bytes | None:
    """Return the answer by the kernel that searches and writes; None: it does not have the options."""
    asked = asked_of(query, rows)
    if asked is None:
        return None
    epoch = served.thresholds.epoch
    ids = served.ids
    found = served.sparse.answer_rows(rows, *asked, ids.present(), epoch, ids.serials(rows.n_rows))
    return None if found is None else write_answer(served, epoch, found.predictions)


def asked_of(query: Options, rows: SparseRows) -> tuple[SparseQuery, float] | None:
    """Return what the kernel is asked for rows, and a threshold for all labels; None: it lacks an option."""
    if query.allow_labels is not None or query.deny_labels is not None or query.statistics or query.explain:
        return None
    if query.language is not None or query.label_info:
        return None
    kind, number = NO_THRESHOLD, 0.0
    if isinstance(query.threshold, float):
        kind, number = NUMBER, query.threshold
        if not 0 < np.float32(number) < 1:  # of all labels, or of none
            return None
    elif query.threshold == TUNED:
        kind = TUNED_KIND
    n_values = len(rows.indices)
    return SparseQuery(rows.n_rows, n_values, query.top_r, query.beam_width, kind, int(query.exact)), number


def _write(predictions: Sequence[bytes], epoch: int, served: ServedVersion) -> bytes:
    return write_answer(served, epoch, b",".join(predictions))


def is_short(query: PredictRequest, served: ServedVersion) -> bool:
    """Return whether a request is read fast, and searched fast by a beam."""
    items_a_character = served.featurizer.items_a_character
    sizes = (_size(instance, items_a_character) for instance in query.instances)
    return is_short_of(query, len(query.instances), sizes, served)


def is_short_of(query: Options, n_rows: int, sizes: Iterable[int], served: ServedVersion) -> bool:
    """Return whether so many instances are; `sizes` has the items of each: its characters, as often
    as its featurizer counts them, its features or names."""
    if query.deadline_ms is not None or query.label_weights is not None or query.chunk_characters:
        return False
    if not is_small(n_rows, query.beam_width, served):
        return False
    n_items = sum(sizes)
    n_items += _items_told(query, served) * n_rows * query.top_r
    if query.allow_labels is not None or query.deny_labels is not None:
        n_items += len(query.allow_labels or ()) + len(query.deny_labels or ())
        if not served.masks.keeps(query.allow_labels, query.deny_labels):
            n_items += served.labels.n_names // MASKED_AN_ITEM
    if query.explain:
        n_labels = n_rows * min(query.top_r, served.predictor.n_labels)
        n_nodes = n_labels * served.predictor.nodes_explained
        return n_nodes <= SHORT_NODES and n_items * n_nodes <= SHORT_ITEMS
    return n_items <= SHORT_ITEMS


def is_small(n_rows: int, beam_width: int, served: ServedVersion) -> bool:
    """Return whether so many rows and so wide a beam are searched that fast."""
    if n_rows * beam_width > SHORT_BEAMS:
        return False
    return n_rows * served.predictor.children_scored(beam_width) <= SHORT_CHILDREN


def _size(instance: AnyInstance, items_a_character: int) -> int:
    if isinstance(instance, TextInstance):
        return len(instance.text) * items_a_character
    return len(instance.indices) if isinstance(instance, SparseInstance) else len(instance.features)


def sparse_forms(limits: Limits) -> SparseForms:
    """Return which sparse requests are answered at once: within the limits, and short enough."""
    labels_max = min(limits.answer_labels_max, SHORT_ITEMS)
    most = SparseLimits(limits.top_r_max, limits.beam_width_max, labels_max, SHORT_BEAMS, SHORT_CHILDREN)
    usual = Options()
    bodies = BodyForms(
        rows_max=min(SHORT_BEAMS, limits.instances_max),
        values_max=min(SHORT_ITEMS, limits.features_max),
        characters_max=SHORT_ITEMS,
        text_bytes_max=limits.text_bytes_max,
        top_r=usual.top_r,
        beam_width=usual.beam_width,
    )
    return SparseForms(most, bodies)
