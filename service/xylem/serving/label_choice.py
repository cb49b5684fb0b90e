"""Prepare a request's choice of labels for the search: weights, and masks of allowed labels."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from xylem.base import UnsupportedOption
from xylem.engine import Branch, NodeWeights, Searcher, label_ids
from xylem.evaluation import constants_of, propensities
from xylem.serving.label_info import LiveLabelInfo
from xylem_store import LABEL_COUNTS, U8, Model


class LabelWeights:
    """Prepares label weights for one version; inverse propensities are prepared once."""

    def __init__(self, predictor: Searcher, model: Model) -> None:
        self._predictor = predictor
        self._model = model

    def prepare(self, label_weights: Literal["propensity"] | dict[str, float]) -> NodeWeights:
        """Return label weights for the engine; labels that are not named have weight 1. O(nodes).

        Raises UnknownLabel, and UnsupportedOption for propensities if the version does not know how
        often its labels occur.
        """
        if isinstance(label_weights, str):
            return self._inverse_propensities
        weights = np.ones(self._predictor.n_labels, np.float32)
        names = list(label_weights)
        ids, _ = label_ids(self._model.labels, names, lambda i: f"label_weights.{names[i]}")
        weights[ids] = list(label_weights.values())
        return self._predictor.node_weights(weights)

    @cached_property
    def _inverse_propensities(self) -> NodeWeights:
        manifest = self._model.manifest
        counts = self._model.arrays.get(LABEL_COUNTS)
        if counts is None or manifest.data.rows < 1:
            raise UnsupportedOption(
                "label_weights: expected a version that knows how often its labels occur, found "
                "one that was imported"
            ).with_path("label_weights")
        weights = 1.0 / propensities(
            counts, manifest.data.rows, *constants_of(manifest.trainer.parameters)
        )
        return self._predictor.node_weights(weights.astype(np.float32))


# The most bytes of cached masks of a version, with the names they are cached under.
CACHE_BYTES_MAX = 16 << 20

_NAME_BYTES = 64  # what a name takes in memory besides its characters

_List: TypeAlias = Sequence[str | Branch] | None
_Lists: TypeAlias = tuple[tuple[str | Branch, ...] | None, tuple[str | Branch, ...] | None]


class LabelMasks:
    """Makes and caches the masks of allowed labels of one version. Thread-safe.

    Aliases that deny the same labels may share it.
    """

    def __init__(self, predictor: Searcher, info: LiveLabelInfo, among: U8 | None = None) -> None:
        """Take the engine that makes masks.

        info   finds the labels of lists; if its label info is replaced, no mask is cached any more
        among  uint8[K], 0 for labels that no request may allow; None: all may be allowed
        """
        self._predictor = predictor
        self._info = info
        self._facts = info.current
        self._among = among
        self._lock = threading.Lock()
        self._cached: OrderedDict[_Lists, U8] = OrderedDict()
        self._n_bytes = 0

    def mask_of(self, allow: _List, deny: _List) -> U8 | None:
        """Return the mask of the labels that are allowed (None: all) and not denied.

        None stands for a mask of all labels. The mask is shared: nobody may write to it. Raises
        UnknownLabel. O(nodes); O(names) for lists whose mask is cached.
        """
        if allow is None and deny is None and self._among is None:
            return None
        lists = _lists_of(allow, deny)
        with self._lock:
            facts = self._info.current
            if facts is not self._facts:
                self._facts = facts
                self._cached.clear()
                self._n_bytes = 0
            cached = self._cached.get(lists)
            if cached is not None:
                self._cached.move_to_end(lists)
                return cached
        allowed = np.full(self._predictor.n_labels, allow is None, np.uint8)
        allowed[self._info.label_ids(allow or (), "allow_labels[{}]".format)[0]] = 1
        allowed[self._info.label_ids(deny or (), "deny_labels[{}]".format)[0]] = 0
        mask = self._predictor.label_mask(allowed if self._among is None else allowed & self._among)
        with self._lock:
            if lists not in self._cached and facts is self._facts:
                self._cached[lists] = mask
                self._n_bytes += _bytes_of(lists, mask)
            while self._n_bytes > CACHE_BYTES_MAX:  # drop the least recently used
                self._n_bytes -= _bytes_of(*self._cached.popitem(last=False))
        return mask

    def keeps(self, allow: _List, deny: _List) -> bool:
        """Return whether the mask of these lists is cached now."""
        with self._lock:
            return _lists_of(allow, deny) in self._cached and self._facts is self._info.current


def _lists_of(allow: _List, deny: _List) -> _Lists:
    return None if allow is None else tuple(allow), None if deny is None else tuple(deny)


def _bytes_of(lists: _Lists, mask: U8) -> int:
    return mask.nbytes + sum(
        _NAME_BYTES + len(item if isinstance(item, str) else item.under)
        for items in lists
        for item in items or ()
    )
