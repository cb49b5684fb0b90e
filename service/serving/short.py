"""Which requests are short: answered on the event loop, because a thread would only delay them."""

from __future__ import annotations

from service.features.sparse_request import BodyForms
from service.inference.fast_answers import FastForms, FastLimits
from service.serving.dialect import Query
from service.serving.schemas.predict import Options
from service.serving.served import ServedVersion
from service.settings import Limits

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

LABEL_INFO_ITEMS = 128
"""Items that a label counts whose label info is told: about 20 microseconds."""

LABEL_NAME_ITEMS = 16
"""Items that each of its names counts, where all are told: about 2 microseconds."""

MASKED_AN_ITEM = 64
"""Labels that are marked as allowed or not in the time that an item takes."""


def is_short(query: Query, served: ServedVersion) -> bool:
    """Return whether a request is read fast, and searched fast by a beam."""
    options, n_rows = query.options, query.n_rows
    if options.deadline_ms is not None or options.label_weights is not None or options.chunk_characters:
        return False
    if not is_small(n_rows, options.beam_width, served):
        return False
    n_items = query.n_items(served.featurizer)
    n_items += _items_described(options, served) * n_rows * options.top_r
    if options.allow_labels is not None or options.deny_labels is not None:
        n_items += len(options.allow_labels or ()) + len(options.deny_labels or ())
        if not served.masks.keeps(options.allow_labels, options.deny_labels):
            n_items += served.labels.n_names // MASKED_AN_ITEM
    if options.explain:
        n_labels = n_rows * min(options.top_r, served.predictor.n_labels)
        n_nodes = n_labels * served.predictor.nodes_explained
        return n_nodes <= SHORT_NODES and n_items * n_nodes <= SHORT_ITEMS
    return n_items <= SHORT_ITEMS


def is_small(n_rows: int, beam_width: int, served: ServedVersion) -> bool:
    """Return whether so many rows and so wide a beam are searched that fast."""
    if n_rows * beam_width > SHORT_BEAMS:
        return False
    return n_rows * served.predictor.children_scored(beam_width) <= SHORT_CHILDREN


def _items_described(options: Options, served: ServedVersion) -> int:
    """Return how many items a label counts by what of its label info is described."""
    facts = served.info.current
    if facts is None or not (options.label_info or options.language is not None):
        return 0
    n_names = len(facts.info.head.languages) if options.label_info else 0
    return LABEL_INFO_ITEMS + LABEL_NAME_ITEMS * n_names


def fast_forms(limits: Limits) -> FastForms:
    """Return which requests are answered at once: within the limits, and short enough."""
    labels_max = min(limits.answer_labels_max, SHORT_ITEMS)
    most = FastLimits(limits.top_r_max, limits.beam_width_max, labels_max, SHORT_BEAMS, SHORT_CHILDREN)
    usual = Options()
    bodies = BodyForms(
        rows_max=min(SHORT_BEAMS, limits.instances_max),
        values_max=min(SHORT_ITEMS, limits.features_max),
        characters_max=SHORT_ITEMS,
        text_bytes_max=limits.text_bytes_max,
        top_r=usual.top_r,
        beam_width=usual.beam_width,
    )
    return FastForms(most, bodies)
