"""Prepare a request's choice of labels for the search: weights, and masks of allowed labels."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from xylem.base import UnsupportedOption
from xylem.engine import NodeWeights, Searcher, label_ids
from xylem.evaluation import constants_of, propensities
from xylem_store import U8, Model


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
        weights[label_ids(self._model.labels, list(label_weights), "label_weights")] = list(
            label_weights.values()
        )
        return self._predictor.node_weights(weights)

    @cached_property
    def _inverse_propensities(self) -> NodeWeights:
        manifest = self._model.manifest
        counts = self._model.arrays.get("labels/counts")
        if counts is None or manifest.data.rows < 1:
            raise UnsupportedOption(
                "label_weights: expected a version that knows how often its labels occur, found "
                "one that was imported"
            ).with_path("label_weights")
        weights = 1.0 / propensities(
            counts, manifest.data.rows, *constants_of(manifest.trainer.parameters)
        )
        return self._predictor.node_weights(weights.astype(np.float32))


CACHE_BYTES_MAX = 16 << 20
"""The most bytes of cached masks of a version, with the names they are cached under."""

_NAME_BYTES = 64  # what a name takes in memory besides its characters

_Lists: TypeAlias = tuple[tuple[str, ...] | None, tuple[str, ...] | None]


class LabelMasks:
    """Makes and caches the masks of allowed labels of one version. Thread-safe.

    Aliases that deny the same labels may share it.
    """

    def __init__(self, predictor: Searcher, among: U8 | None = None) -> None:
        """Take the engine that makes masks.

        among  uint8[K], 0 for labels that no request may allow; None: all may be allowed
        """
        self._predictor = predictor
        self._among = among
        self._lock = threading.Lock()
        self._cached: OrderedDict[_Lists, U8] = OrderedDict()
        self._n_bytes = 0

    def mask_of(self, allow: Sequence[str] | None, deny: Sequence[str] | None) -> U8 | None:
        """Return the mask of the labels that are allowed (None: all) and not denied.

        None stands for a mask of all labels. The mask is shared: nobody may write to it. Raises
        UnknownLabel. O(nodes); O(names) for lists whose mask is cached.
        """
        lists = _lists_of(allow, deny)
        with self._lock:
            cached = self._cached.get(lists)
            if cached is not None:
                self._cached.move_to_end(lists)
                return cached
        mask = self._predictor.label_mask(*lists, self._among)
        if mask is None:
            return None
        with self._lock:
            if lists not in self._cached:
                self._cached[lists] = mask
                self._n_bytes += _bytes_of(lists, mask)
            while self._n_bytes > CACHE_BYTES_MAX:  # drop the least recently used
                self._n_bytes -= _bytes_of(*self._cached.popitem(last=False))
        return mask

    def keeps(self, allow: Sequence[str] | None, deny: Sequence[str] | None) -> bool:
        """Return whether the mask of these lists is cached now."""
        with self._lock:
            return _lists_of(allow, deny) in self._cached


def _lists_of(allow: Sequence[str] | None, deny: Sequence[str] | None) -> _Lists:
    return None if allow is None else tuple(allow), None if deny is None else tuple(deny)


def _bytes_of(lists: _Lists, mask: U8) -> int:
    return mask.nbytes + sum(_NAME_BYTES + len(name) for names in lists for name in names or ())
