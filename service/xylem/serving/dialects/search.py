"""Answer requests to predict, in any dialect: short ones at once, longer ones in a thread."""

from abc import abstractmethod
from functools import partial

import numpy as np

from xylem.base import ENCODE, FEATURES, QUEUE, SEARCH, WRITE, Limits, StageTimings
from xylem.engine import NO_THRESHOLD, NUMBER, TUNED as TUNED_KIND
from xylem.serving.dialects.dialect import Dialect, Longer, Query, Reply
from xylem.serving.dialects.predict.fast_request import FastForms
from xylem.serving.dialects.predict.kernels.fast_request import FastLimits
from xylem.serving.dialects.predict.kernels.request_bodies import BodyForms, BodyQuery
from xylem.serving.dialects.predict.schema import TUNED, Options
from xylem.serving.live.served import ServedVersion
from xylem.serving.rows import ChunkedRows, search_chunked, to_options
from xylem_store import U8

# The most rows times beam width that the event loop searches: a fraction of a millisecond.
SHORT_BEAMS = 64

# The most children of nodes, on one level of all trees, that the event loop scores.
#
# The bound is needed for flat models, which have many children on one level.
SHORT_CHILDREN = 8192

# The most items (characters, features, names of labels) that the event loop reads.
#
# In an explanation each item counts once for every explained node. Where the featurizer looks up
# stems or lemmas in Python, a character counts as several items: `items_a_character` says how many.
SHORT_ITEMS = 8192

# The most nodes, of all labels and rows together, that the event loop explains.
SHORT_NODES = 64

# a label that is answered with its label info counts as this many items: about 20 microseconds
LABEL_INFO_ITEMS = 128
# each of its names counts as this many where all are answered: about 2 microseconds
LABEL_NAME_ITEMS = 16

# Labels that are marked as allowed or denied in the time that one item takes.
MASKED_AN_ITEM = 64


def is_short(query: Query, served: ServedVersion) -> bool:
    """Return whether a request is read and searched fast enough for the event loop."""
    options = query.options
    n_rows = query.n_rows
    if (
        options.deadline_ms is not None
        or options.label_weights is not None
        or options.chunk_characters
        or served.featurizer.encoders
        or n_rows * options.beam_width > SHORT_BEAMS
        or n_rows * served.predictor.children_scored(options.beam_width) > SHORT_CHILDREN
    ):
        return False
    n_items = query.n_items(served.featurizer)
    facts = served.info.current
    if facts is not None and (options.label_info or options.language is not None):
        n_names = len(facts.info.head.languages) if options.label_info else 0
        n_items += (LABEL_INFO_ITEMS + LABEL_NAME_ITEMS * n_names) * n_rows * options.top_r
    if options.allow_labels is not None or options.deny_labels is not None:
        n_items += len(options.allow_labels or ()) + len(options.deny_labels or ())
        if not served.masks.keeps(options.allow_labels, options.deny_labels):
            if served.info.searches([*(options.allow_labels or ()), *(options.deny_labels or ())]):
                return False
            n_items += served.labels.n_names // MASKED_AN_ITEM
    if options.explain:
        n_labels = n_rows * min(options.top_r, served.predictor.n_labels)
        n_nodes = n_labels * served.predictor.nodes_explained
        return n_nodes <= SHORT_NODES and n_items * n_nodes <= SHORT_ITEMS
    return n_items <= SHORT_ITEMS


def fast_forms(limits: Limits) -> FastForms:
    """Return the bounds of the requests that the kernel answers at once."""
    defaults = Options()
    return FastForms(
        FastLimits(
            top_r_max=limits.top_r_max,
            beam_width_max=limits.beam_width_max,
            labels_max=min(limits.answer_labels_max, SHORT_ITEMS),
            beams_max=SHORT_BEAMS,
            children_max=SHORT_CHILDREN,
        ),
        BodyForms(
            rows_max=min(SHORT_BEAMS, limits.instances_max),
            values_max=min(SHORT_ITEMS, limits.features_max),
            characters_max=SHORT_ITEMS,
            text_bytes_max=limits.text_bytes_max,
            top_r=defaults.top_r,
            beam_width=defaults.beam_width,
        ),
    )


# the fields that the kernel understands; a request must leave all others at their defaults
_OF_KERNEL = frozenset(
    {"instances", "top_r", "beam_width", "exact", "threshold", "binary_data_output"}
)

_DEFAULTS = {name: field.default for name, field in Options.model_fields.items()}


class SearchDialect(Dialect[Query]):
    """Answers requests that are searched: at once if they are short, else in a thread."""

    def answer_read(
        self, query: Query, served: ServedVersion, limits: Limits, timings: StageTimings
    ) -> Reply | Longer:
        if not is_short(query, served):
            return self._longer(query, served, timings)
        chunked = query.to_rows(served.featurizer)
        timings.end(FEATURES)
        reply = self.answer_rows(query, chunked, served)
        if reply is not None:
            if timings.is_traced:
                timings.add_kernel_times(served.fast.times)
            return reply
        epoch = served.thresholds.epoch
        options = to_options(query.options, served)
        predictions = served.predictor.predict_on_event_loop(chunked.rows, options)
        if predictions is None:
            return self._longer(query, served, timings)
        timings.end(SEARCH)
        reply = query.reply(predictions, chunked, options, epoch, served)
        timings.end(WRITE)
        return reply

    def deadline_ms(self, query: Query) -> int | None:
        return query.options.deadline_ms

    def answer_rows(
        self, query: Query, chunked: ChunkedRows, served: ServedVersion
    ) -> Reply | None:
        """Return the answer to the rows of a request, by one kernel; None if none answers it."""
        return None

    def _longer(self, query: Query, served: ServedVersion, timings: StageTimings) -> Longer:
        return Longer(
            partial(self.answer_fully, query, served, timings=timings), query.options.deadline_ms
        )

    def answer_fully(
        self,
        query: Query,
        served: ServedVersion,
        stop: U8 | None = None,
        timings: StageTimings | None = None,
    ) -> Reply:
        """Answer a request of any length. May be called by any thread.

        When `stop` is set, the search ends early and returns only the labels that are certain by
        then.
        """
        timings = timings or StageTimings()
        timings.end(QUEUE)
        chunked = query.to_rows(served.featurizer)
        timings.end(ENCODE if served.featurizer.encoders else FEATURES)
        epoch = served.thresholds.epoch
        options = to_options(query.options, served, stop)
        predictions = search_chunked(served.predictor.predict, chunked, options, served)
        timings.end(SEARCH)
        reply = query.reply(predictions, chunked, options, epoch, served)
        timings.end(WRITE)
        return reply

    @abstractmethod
    def first_labels(
        self, reply: bytes, n_json: int | None, n_max: int, served: ServedVersion
    ) -> list[list[str]]:
        """Return the names of the first `n_max` labels of each row, read from an answer.

        reply   the bytes of the answer; the first `n_json` are JSON (None: all)
        served  the version that gave the answer
        """


def body_query_of(options: Options, n_rows: int, n_values: int) -> tuple[BodyQuery, float] | None:
    """Return the query that a kernel answers for some rows, and the threshold as a number.

    The number is 0 if the threshold is not a number. Returns None if kernels do not have one of the
    options.
    """
    for name in options.model_fields_set - _OF_KERNEL:
        if name not in _DEFAULTS or getattr(options, name) != _DEFAULTS[name]:
            return None
    kind = NO_THRESHOLD
    number = 0.0
    if isinstance(options.threshold, float):
        kind = NUMBER
        number = options.threshold
        if not 0 < np.float32(number) < 1:  # all labels reach it, or none does
            return None
    elif options.threshold == TUNED:
        kind = TUNED_KIND
    return BodyQuery(
        n_rows=n_rows,
        n_values=n_values,
        top_r=options.top_r,
        beam_width=options.beam_width,
        threshold=kind,
        is_exact=int(options.exact),
    ), number
