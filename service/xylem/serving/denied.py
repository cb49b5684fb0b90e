"""What serves a version without labels: those that an alias denies, and deprecated concepts."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from xylem.base import Limits, StageTimes, UnknownLabel
from xylem.engine import fast_requests
from xylem.serving.answer import fast_forms
from xylem.serving.label_choice import LabelMasks
from xylem.serving.served import DeniedLabels, ServedVersion
from xylem_store import Store, find_all, is_version, name_of


def with_denied(
    served: ServedVersion,
    names: Sequence[str],
    limits: Limits | None = None,
    stages: StageTimes | None = None,
) -> ServedVersion:
    """Return what serves a version without the labels that an alias
    denies, and deprecated ones. O(nodes).

    served          of a version; it is what is returned where it has the labels wanted
    names           of labels to deny; the version need not have them
    limits, stages  as `serve_model` takes them
    """
    facts = served.info.current
    by_info = None if facts is None else facts.allowed
    if not names and by_info is (None if served.denied is None else served.denied.by_info):
        return served
    denying = _denying(served, names, by_info)
    mask = None if denying.denied is None else denying.denied.mask
    forms = fast_forms(limits or Limits())
    return denying._replace(
        fast=fast_requests(served.opened, served.predictor, served.featurizer, forms, stages, mask)
    )


def denying_as(served: ServedVersion, other: ServedVersion) -> ServedVersion:
    """Return a version for feedback that came by the alias that `other`
    serves: it denies the same labels.
    """
    if other.denied is None or not other.denied.names:
        return served
    return _denying(
        served, other.denied.names, None if served.denied is None else served.denied.by_info
    )


def _denying(
    served: ServedVersion, names: Sequence[str], by_info: NDArray[np.uint8] | None
) -> ServedVersion:
    """Return a version that denies labels, but for its fast answers."""
    denied = None
    if names or by_info is not None:
        allowed = np.ones(served.labels.n_names, np.uint8) if by_info is None else by_info.copy()
        ids = find_all(served.labels, names)
        allowed[ids[ids >= 0]] = 0
        mask = served.predictor.label_mask(among=allowed)
        assert mask is not None
        denied = DeniedLabels(tuple(names), int(np.count_nonzero(ids < 0)), allowed, mask, by_info)
    masks = LabelMasks(served.predictor, None if denied is None else denied.allowed)
    return served._replace(denied=denied, masks=masks)


def denied_by(store: Store, model: str, ref: str) -> tuple[str, ...]:
    """Return the labels that an alias denies; none of a number: a version itself denies nothing.

    Raises what the store does.
    """
    return () if is_version(ref) else store.alias(model, ref).denied


def check_not_denied(served: ServedVersion, ids: Sequence[int], place: str) -> None:
    """Raise UnknownLabel for the first of some labels that is never answered, at place[i]."""
    if served.denied is None:
        return
    for i, label in enumerate(ids):
        if not served.denied.allowed[label]:
            name = f"{name_of(served.labels, label)!r:.80}"
            fault = UnknownLabel(
                f"expected a label that is neither denied nor deprecated, found {name}"
            )
            raise fault.at(f"{place}[{i}]")
