"""Open a version for serving, and compile or load every kernel that a request can need."""

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from xylem.base import BadInstance, Limits, StageTimes
from xylem.engine import ALL_ALLOWED, feature_names, make_predictor
from xylem.serving.dialects.dialect import Body
from xylem.serving.dialects.predict.dialect import PREDICT, PredictQuery
from xylem.serving.dialects.predict.fast_request import fast_requests
from xylem.serving.dialects.predict.schema import PredictRequest
from xylem.serving.dialects.search import fast_forms
from xylem.serving.dialects.tensors.dialect import TENSORS
from xylem.serving.feedback.events import read_sparse
from xylem.serving.feedback.prediction_ids import PredictionIds
from xylem.serving.kernels.text_lines import read_sparse_lines, text_rows_of_lines
from xylem.serving.label_choice import LabelMasks, LabelWeights
from xylem.serving.label_info import LabelInfos, LiveLabelInfo
from xylem.serving.live.denied import denied_by, with_denied
from xylem.serving.live.served import ServedVersion
from xylem.serving.long_json import PIECE_BYTES, load_in_pieces, size_of
from xylem.serving.schemas.fields import NamedInstance, SparseInstance, TextInstance
from xylem.thresholds import ServedThresholds, counts_that_bound, start_for
from xylem.vocabulary import featurizer_of
from xylem_store import LABEL_COUNTS, Model, Store, name_of

if TYPE_CHECKING:
    from xylem.serving.learning import OnlineLearning

_TENSORS = (
    b'{"inputs":[{"name":"indptr","shape":[2],"datatype":"INT64","data":[0,1]},'
    b'{"name":"indices","shape":[1],"datatype":"INT32","data":[0]},'
    b'{"name":"values","shape":[1],"datatype":"FP32","data":[1]}]}'
)


def open_named(
    store: Store,
    name: str,
    ref: str | int,
    learning: "OnlineLearning | None" = None,
    limits: Limits | None = None,
    *,
    denied: Sequence[str] | None = None,
    is_tuned: bool = False,
) -> ServedVersion:
    """Open a version, named by number or alias, for commands and jobs.

    It is opened as by `open_version`, then:

    denied    labels that are never answered; None: those that the alias denies
    is_tuned  whether its thresholds are updated to those in the database

    Raises the store's errors, and DatabaseUnavailable.
    """
    served = with_denied(
        open_version(store.open(name, ref), learning, limits, LabelInfos(store)),
        denied_by(store, name, str(ref)) if denied is None else denied,
        limits,
    )
    if is_tuned and learning is not None:
        learning.catch_up(served.thresholds)
    served.thresholds.is_known = True
    return served


def open_version(
    model: Model,
    learning: "OnlineLearning | None" = None,
    limits: Limits | None = None,
    infos: LabelInfos | None = None,
    stages: StageTimes | None = None,
    *,
    is_warm: bool = False,
) -> ServedVersion:
    """Return a version, ready to answer requests. Blocking. Raises Corrupt.

    infos    the label info of the store's models, which says which labels are deprecated and so
             never answered; None: no label info
    stages   counts how long the stages of short answers take; None: nothing is counted
    is_warm  whether every kernel that a request can need is compiled or loaded now; commands leave
             it out, and compile the few they need
    """
    manifest = model.manifest
    predictor = make_predictor(model)
    featurizer = featurizer_of(model)
    thresholds = ServedThresholds(
        model=manifest.model,
        version=manifest.version,
        n_labels=manifest.n_labels,
        traversal=predictor,
        label_counts=counts_that_bound(model.arrays),
        n_rows=manifest.data.rows,
        start=start_for(manifest.link, model.arrays, manifest.data.rows),
        digest=manifest.digest,
    )
    if learning is not None:
        learning.follower.add(thresholds)
    info = LiveLabelInfo(manifest.model, model.labels)
    unlearned = (  # in a combined version the labels that no member was trained on
        (model.arrays.get(LABEL_COUNTS, np.ones(manifest.n_labels)) == 0).view(np.uint8)
        if manifest.members
        else ALL_ALLOWED
    )
    served = ServedVersion(
        name=manifest.model,
        version=manifest.version,
        predictor=predictor,
        featurizer=featurizer,
        labels=model.labels,
        features=feature_names(manifest.features, model.arrays),
        weights=LabelWeights(predictor, model),
        masks=LabelMasks(predictor, info),
        thresholds=thresholds,
        ids=PredictionIds(thresholds, learning, unlearned),
        fast=fast_requests(model, predictor, featurizer, fast_forms(limits or Limits()), stages),
        opened=model,
        info=info if infos is None else infos.follow(info),
    )
    served = with_denied(served, (), limits, stages)
    if is_warm:
        _warm_up(served)
    return served


# Open a version for a server: as `open_version`, with all kernels.
serve_model = partial(open_version, is_warm=True)


# The kinds of the versions that were warmed up in this process: see `_warm_up`. They are hashes, as
# the text of a kind is long. If two kinds had the same one, a first request would take longer.
_warm_kinds: set[int] = set()


def _warm_up(served: ServedVersion) -> None:
    """Answer one instance of each kind: plainly, with lists of labels, with an explanation.

    Lines of a batch, bodies, tensors and events are read by kernels of their own, which are called
    too. Another version of the same kind needs the same kernels, so nothing of this is done again:
    it would be a third of each opening, in a store of many models.
    """
    served.fast.prepare()
    manifest = served.opened.manifest
    kinds = [
        (part.kind, part.link, part.weights, part.n_trees, part.features)
        for part in (manifest, *manifest.members)
    ]
    arrays = [(name, info.dtype, len(info.shape)) for name, info in manifest.arrays.items()]
    kind = hash(repr((kinds, arrays)))
    if kind in _warm_kinds:
        return
    served.thresholds.warm_up()
    read_sparse_lines([b"{}"], 1)
    text_rows_of_lines([b'{"text":""}'], served.featurizer, 1)
    size_of(b"{}")
    load_in_pieces(b'{"a":[%s]}' % b",".join([b"1"] * PIECE_BYTES))
    limits = Limits()
    read_sparse(
        b'{"event_id":"1","labels":[],"instance":{"indices":[0],"values":[1]}}',
        served,
        None,
        limits,
        are_lines=False,
    )
    body = b'{"instances":[{"indices":[0],"values":[1]}]}'
    fast_requests(served.opened, served.predictor, served.featurizer, fast_forms(limits)).answer(
        body, 0, served.ids.sign(0, 1)
    )
    for dialect, content in ((PREDICT, body), (TENSORS, _TENSORS)):
        dialect.answer_fully(dialect.read(Body(content), limits), served)
    label = name_of(served.labels, 0)
    option_sets: tuple[dict[str, Any], ...] = (
        {},
        {"allow_labels": [label]},
        {"deny_labels": [label]},
        {"explain": True},
        {"label_weights": {label: 2.0}, "statistics": True},
    )
    for instance in (
        TextInstance(text="warm up"),
        SparseInstance(indices=[0], values=[1.0]),
        NamedInstance(features={"warm": 1.0}),
    ):
        for options in option_sets:
            with contextlib.suppress(BadInstance):
                PREDICT.answer_fully(
                    PredictQuery(PredictRequest(instances=[instance], **options)), served
                )
    served.predictor.warm_up()
    _warm_kinds.add(kind)
