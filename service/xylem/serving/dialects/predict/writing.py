"""What the engine found -> what an answer says: ids get their names, predictions get their ids."""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from xylem.base import SparseRows
from xylem.engine import (
    CombinedExplanation,
    Explanation,
    FeatureNames,
    PathNode,
    Predictions,
    PredictOptions,
    RoutedExplanation,
    RoutedStep,
    Spans,
    feature_names,
    predictions_json,
    spans_of,
)
from xylem.serving.batches.lines import dump
from xylem.serving.dialects.predict.answers import (
    ExplainedMember,
    ExplainedName,
    LeavesExplanation,
    MembersExplanation,
    TreesExplanation,
)
from xylem.serving.label_info import LabelInfoOptions, members_of
from xylem.serving.live.served import ServedVersion
from xylem.vocabulary import NameMatcher
from xylem_store import member_arrays

ShownFeature: TypeAlias = Callable[[int], dict[str, str]]
"""Returns the members of a FeatureContribution that say which feature it is."""

KIND_BITS = 3
_KINDS: tuple[Literal["preferred", "alternative", "hidden"], ...] = (
    "preferred",
    "alternative",
    "hidden",
)
ANSWER_END = b"]}"
_BEGIN = b'{"labels":['
_END = b'],"prediction_id":"'
"""What stands around the labels of a Prediction; in a name a quote would have a backslash."""


def write_predictions(
    found: Predictions,
    options: PredictOptions,
    epoch: int,
    served: ServedVersion,
    labels_json: Sequence[bytes] | None = None,
    unknown: Sequence[int] = (),
) -> list[bytes]:
    """Return the JSON of a Prediction for each row; `labels_json` has
    further members of each of its labels.

    epoch    that of the thresholds before the rows were predicted
    unknown  the rows of which the model knows nothing
    """
    # scores that a predicted label's must reach: of an answer at tuned thresholds all of them do
    is_tuned = isinstance(options.threshold, np.ndarray)
    thresholds = np.empty(0, np.float32) if is_tuned else served.thresholds.thresholds
    present, _, serial = served.ids.sign(epoch, len(found.ptr) - 1)
    seal = present.seal_at(epoch)
    predictions = predictions_json(
        served.labels, thresholds, seal, serial, spans_of(found), present.unlearned
    )
    if labels_json is not None:
        predictions = _with_members(predictions, labels_json, found, served)
    if len(found.costs):
        predictions = [
            b'%b,"statistics":{"nodes":%d,"weight_bytes":%d}}'
            % (prediction[:-1], nodes, weight_bytes)
            for prediction, (nodes, weight_bytes) in zip(
                predictions, found.costs.tolist(), strict=True
            )
        ]
    for row in unknown:
        predictions[row] = predictions[row][:-1] + b',"no_known_features":true}'
    return predictions


@functools.lru_cache(1024)
def answer_head(model: str, version: int, epoch: int) -> bytes:
    """Return what stands before the predictions of a PredictAnswer."""
    shown = b"%d" % epoch if epoch else b"null"
    head = b'{"model":"%b","version":%d,"threshold_epoch":%b,"predictions":['
    return head % (model.encode(), version, shown)


def _with_members(
    predictions: Sequence[bytes],
    labels_json: Sequence[bytes],
    found: Predictions,
    served: ServedVersion,
) -> list[bytes]:
    """Return the predictions, each of their labels with further members."""
    places = np.arange(len(found.labels) + 1)
    spans = Spans(
        places[:-1], places[1:], found.labels, found.scores, np.zeros(len(found.labels), np.uint8)
    )
    present, _, serial = served.ids.sign(0, len(found.labels))
    thresholds = np.empty(0, np.float32)
    seal = present.seal_at(0)
    singles = predictions_json(served.labels, thresholds, seal, serial, spans, present.unlearned)
    objects = [
        b"%b,%b}" % (single[len(_BEGIN) : single.rindex(_END) - 1], members)
        for single, members in zip(singles, labels_json, strict=True)
    ]
    return [
        b"%b%b%b" % (_BEGIN, b",".join(objects[start:end]), prediction[prediction.rindex(_END) :])
        for prediction, (start, end) in zip(
            predictions, itertools.pairwise(found.ptr.tolist()), strict=True
        )
    ]


def describe_labels(
    found: Predictions,
    rows: SparseRows,
    served: ServedVersion,
    info: LabelInfoOptions | None,
    *,
    explain: bool,
    texts: Sequence[str | None] = (),
) -> list[bytes] | None:
    """Return the members that the labels found for `rows` have besides the usual ones; None: none.

    texts  those of the rows, None of one without; or empty: they are not at hand
    """
    parts = []
    if info is not None:
        parts.append(members_of(info, found.labels))
    if explain:
        parts.append(
            [b'"explanation":%b' % one for one in explain_labels(found, rows, served, texts)]
        )
    return [b",".join(members) for members in zip(*parts, strict=True)] if parts else None


def explain_labels(
    found: Predictions, rows: SparseRows, served: ServedVersion, texts: Sequence[str | None] = ()
) -> list[bytes]:
    """Return the JSON of the explanation of each label that was found for `rows`;
    `texts` as above.
    """
    explanations = []
    shown = _shown_by(served.features)
    for row, (start, end) in enumerate(itertools.pairwise(found.ptr.tolist())):
        for label in found.labels[start:end].tolist():
            why = served.predictor.explain(rows, row, label)
            if isinstance(why, CombinedExplanation):
                text = texts[row] if texts else None
                explanations.append(dump(_combined(why, label, text, served)))
            else:
                explanations.append(dump(_of_trees(why, shown)))
    return explanations


def _of_trees(
    why: Explanation | RoutedExplanation, shown: ShownFeature
) -> TreesExplanation | LeavesExplanation:
    if isinstance(why, RoutedExplanation):
        leaves: list[Any] = [
            {**leaf._asdict(), "path": _path(leaf.path, shown)} for leaf in why.leaves
        ]
        return LeavesExplanation(leaves=leaves)
    return TreesExplanation(trees=[{"path": _path(nodes, shown)} for nodes in why.trees])


def _combined(
    why: CombinedExplanation, label: int, text: str | None, served: ServedVersion
) -> MembersExplanation:
    """Return what the members say of a label, and which names of
    it the text has, if that is at hand.
    """
    members: list[ExplainedMember] = []
    for number, (manifest, said) in enumerate(
        zip(served.opened.manifest.members, why.members, strict=True)
    ):
        told: ExplainedMember = {"member": manifest.shown}
        if said.score is not None and said.rank is not None:
            told |= {"score": said.score, "rank": said.rank}
        if said.why is not None:
            arrays = member_arrays(number, served.opened.arrays)
            told["explanation"] = _of_trees(
                said.why, _shown_by(feature_names(manifest.features, arrays))
            )
        members.append(told)
    names: list[ExplainedName] = []
    matcher = getattr(served.featurizer, "names", None)
    if text is not None and why.is_named and isinstance(matcher, NameMatcher):
        names = [
            {"name": one.name, "kind": _KINDS[one.kind & KIND_BITS], "words": one.words}
            for one in matcher.explain(text, label)
        ]
    return {"members": members, "names": names}


def _path(nodes: Sequence[PathNode | RoutedStep], shown: ShownFeature) -> list[Any]:
    """Return the nodes of a path as JSON has them: its own fields
    each, and features by their names.
    """
    return [
        node._asdict()
        | {"features": [{**shown(at), "contribution": added} for at, added in node.features]}
        for node in nodes
    ]


def _shown_by(names: FeatureNames | None) -> ShownFeature:
    """Return what shows features by their names, each name made once: labels have
    many in common.
    """

    @functools.cache
    def shown(feature: int) -> dict[str, str]:
        if names is None:
            return {"feature": str(feature)}
        part = {"part": "chars"} if names.is_chars(feature) else {}
        return {"feature": names.name(feature), **part}

    return shown
