"""Versions that leave out labels: those that an alias denies, and deprecated ones."""

from collections.abc import Callable, Sequence

import numpy as np

from xylem.base import Limits, StageTimes, UnknownLabel
from xylem.serving.dialects.predict.fast_request import fast_requests
from xylem.serving.dialects.search import fast_forms
from xylem.serving.label_choice import LabelMasks
from xylem.serving.live.served import DeniedLabels, ServedVersion
from xylem_store import I32, U8, Store, find_all, is_version, name_of


def with_denied(
    served: ServedVersion,
    names: Sequence[str],
    limits: Limits | None = None,
    stages: StageTimes | None = None,
) -> ServedVersion:
    """Return a version that never answers denied or deprecated labels. O(nodes).

    served          the version; returned unchanged if `names` is empty and no other labels are
                    deprecated than before
    names           the labels that an alias denies; the version need not have them
    limits, stages  as `open_version` takes them
    """
    facts = served.info.current
    by_info = None if facts is None else facts.allowed
    if not names and by_info is (None if served.denied is None else served.denied.by_info):
        return served
    denying = _denying(served, names, by_info)
    return denying._replace(
        fast=fast_requests(
            served.opened,
            served.predictor,
            served.featurizer,
            fast_forms(limits or Limits()),
            stages,
            None if denying.denied is None else denying.denied.mask,
        )
    )


def denying_as(served: ServedVersion, other: ServedVersion) -> ServedVersion:
    """Return a version that denies the same labels as `other`, the version that an alias serves.

    It is used for feedback that came by this alias to predictions of another version.
    """
    if other.denied is None or not other.denied.names:
        return served
    return _denying(
        served, other.denied.names, None if served.denied is None else served.denied.by_info
    )


def _denying(served: ServedVersion, names: Sequence[str], by_info: U8 | None) -> ServedVersion:
    """Return a version that denies labels. Its fast answers do not: they are those of `served`.

    names    labels to deny by name
    by_info  uint8[K], 0 for deprecated labels; None: no label is
    """
    denied = None
    if names or by_info is not None:
        allowed = np.ones(served.labels.n_names, np.uint8) if by_info is None else by_info.copy()
        ids = find_all(served.labels, names)
        allowed[ids[ids >= 0]] = 0
        denied = DeniedLabels(
            tuple(names),
            int(np.count_nonzero(ids < 0)),
            allowed,
            served.predictor.label_mask(allowed),
            by_info,
        )
    return served._replace(
        denied=denied,
        masks=LabelMasks(served.predictor, served.info, None if denied is None else denied.allowed),
    )


def denied_by(store: Store, model: str, ref: str) -> tuple[str, ...]:
    """Return the labels that an alias denies; empty if `ref` is a version's number.

    Raises the errors of `Store.alias`.
    """
    return () if is_version(ref) else store.alias(model, ref).denied


def check_not_denied(served: ServedVersion, ids: I32, place: Callable[[int], str]) -> None:
    """Raise UnknownLabel for the first of the labels that is denied or deprecated.

    place  returns the place of the i-th label in the request
    """
    if served.denied is None:
        return
    for i in np.flatnonzero(served.denied.allowed[ids] == 0).tolist():
        raise UnknownLabel(
            "expected a label that is neither denied nor deprecated, found "
            f"{name_of(served.labels, int(ids[i]))!r:.80}"
        ).with_path(place(i))
