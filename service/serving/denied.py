"""What serves an alias that denies labels: its version, whose answers never have them."""

from collections.abc import Sequence

import numpy as np

from model_store.identifiers import is_version
from model_store.names import find_all, name_of
from model_store.store import Store
from service.base.errors import UnknownLabel
from service.base.settings import Limits
from service.base.stages import StageTimes
from service.inference.fast_steps import fast_requests
from service.serving.answer import fast_forms
from service.serving.label_choice import LabelMasks
from service.serving.served import DeniedLabels, ServedVersion


def with_denied(
    served: ServedVersion,
    names: Sequence[str],
    limits: Limits | None = None,
    stages: StageTimes | None = None,
) -> ServedVersion:
    """Return what serves a version under an alias that denies labels. O(nodes).

    names           of labels; the version need not have them; of none, `served` is what is returned
    limits, stages  as `serve_model` takes them
    """
    if not names:
        return served
    denied = denied_in(served, names)
    fast = fast_requests(
        served.opened,
        served.predictor,
        served.featurizer,
        fast_forms(limits or Limits()),
        stages,
        denied.mask,
    )
    return _denying(served, denied)._replace(fast=fast)


def denied_in(served: ServedVersion, names: Sequence[str]) -> DeniedLabels:
    """Return what denying these labels means for a version."""
    ids = find_all(served.labels, names)
    allowed = np.ones(served.labels.n_names, np.uint8)
    allowed[ids[ids >= 0]] = 0
    mask = served.predictor.label_mask(among=allowed)
    assert mask is not None
    return DeniedLabels(tuple(names), int(np.count_nonzero(ids < 0)), allowed, mask)


def denying_as(served: ServedVersion, other: ServedVersion) -> ServedVersion:
    """Return a version for feedback that came by the alias that `other` serves: it denies the same labels."""
    return served if other.denied is None else _denying(served, denied_in(served, other.denied.names))


def _denying(served: ServedVersion, denied: DeniedLabels) -> ServedVersion:
    return served._replace(denied=denied, masks=LabelMasks(served.predictor, denied.allowed))


def denied_by(store: Store, model: str, ref: str) -> tuple[str, ...]:
    """Return the labels that an alias denies; none of a number: a version itself denies nothing.

    Raises what the store does.
    """
    return () if is_version(ref) else store.alias(model, ref).denied


def check_not_denied(served: ServedVersion, ids: Sequence[int], place: str) -> None:
    """Raise UnknownLabel for the first of some labels that the alias denies, at place[i]."""
    if served.denied is None:
        return
    for i, label in enumerate(ids):
        if not served.denied.allowed[label]:
            found = f"{name_of(served.labels, label)!r:.80}"
            fault = UnknownLabel(f"expected a label that the alias does not deny, found {found}")
            raise fault.at(f"{place}[{i}]")
