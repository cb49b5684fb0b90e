"""Write the engine's predictions as JSON: label names for ids, prediction ids, explanations."""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from xylem.engine import (
    CombinedExplanation,
    Explanation,
    FeatureNames,
    PathNode,
    Predictions,
    PredictOptions,
    RoutedExplanation,
    RoutedStep,
    feature_names,
)
from xylem.serving.batches.lines import dump
from xylem.serving.dialects.predict.prediction_json import Spans, predictions_json, spans_of
from xylem.serving.dialects.predict.schema import (
    ExplainedMember,
    ExplainedName,
    LabelExplanation,
    LeavesExplanation,
    MembersExplanation,
    TreesExplanation,
)
from xylem.serving.label_info import LabelInfoOptions, members_of
from xylem.serving.live.served import ServedVersion
from xylem.serving.rows import ChunkedRows
from xylem.vocabulary import NameMatcher
from xylem_store import member_arrays

# A function from a feature id to the fields of a FeatureContribution that identify the feature.
FeatureDescriber: TypeAlias = Callable[[int], dict[str, str]]

KIND_BITS = 3
_KINDS: tuple[Literal["preferred", "alternative", "hidden"], ...] = (
    "preferred",
    "alternative",
    "hidden",
)
ANSWER_END = b"]}"
# the JSON before and after the labels of a Prediction. Searching for it is safe: within a name the
# quote would be escaped by a backslash
_BEGIN = b'{"labels":['
_END = b'],"prediction_id":"'


def write_predictions(
    predictions: Predictions,
    options: PredictOptions,
    epoch: int,
    served: ServedVersion,
    labels_json: Sequence[bytes] | None = None,
    unknown: Sequence[int] = (),
) -> list[bytes]:
    """Return the JSON of a Prediction for each row.

    epoch        the epoch of the thresholds, read before the rows were predicted
    labels_json  further JSON members of each predicted label, in order; None: no further members
    unknown      rows in which the model knows no feature
    """
    # a label whose score reaches these counts as predicted; at tuned thresholds every label does
    thresholds = (
        np.empty(0, np.float32)
        if isinstance(options.threshold, np.ndarray)
        else served.thresholds.thresholds
    )
    present, _, serial = served.ids.sign(epoch, len(predictions.ptr) - 1)
    json_predictions = predictions_json(
        served.labels,
        thresholds,
        present.seal_at(epoch),
        serial,
        spans_of(predictions),
        present.unlearned,
    )
    if labels_json is not None:
        json_predictions = _with_members(json_predictions, labels_json, predictions, served)
    if len(predictions.costs):
        json_predictions = [
            b'%b,"statistics":{"nodes":%d,"weight_bytes":%d}}'
            % (prediction[:-1], nodes, weight_bytes)
            for prediction, (nodes, weight_bytes) in zip(
                json_predictions, predictions.costs.tolist(), strict=True
            )
        ]
    for row in unknown:
        json_predictions[row] = json_predictions[row][:-1] + b',"no_known_features":true}'
    return json_predictions


_HEADS_MAX = 1024  # cached starts of answers: one for each version and epoch of thresholds


@functools.lru_cache(_HEADS_MAX)
def answer_head(model: str, version: int, epoch: int) -> bytes:
    """Return the JSON of a PredictAnswer up to its predictions."""
    return b'{"model":"%b","version":%d,"threshold_epoch":%b,"predictions":[' % (
        model.encode(),
        version,
        b"%d" % epoch if epoch else b"null",
    )


def _with_members(
    json_predictions: Sequence[bytes],
    labels_json: Sequence[bytes],
    predictions: Predictions,
    served: ServedVersion,
) -> list[bytes]:
    """Return the JSON of the predictions, with further members added to each label."""
    places = np.arange(len(predictions.labels) + 1)
    spans = Spans(
        places[:-1],
        places[1:],
        predictions.labels,
        predictions.scores,
        np.zeros(len(predictions.labels), np.uint8),
    )
    present, _, serial = served.ids.sign(0, len(predictions.labels))
    singles = predictions_json(
        served.labels, np.empty(0, np.float32), present.seal_at(0), serial, spans, present.unlearned
    )
    label_objects = [
        b"%b,%b}" % (single[len(_BEGIN) : single.rindex(_END) - 1], members)
        for single, members in zip(singles, labels_json, strict=True)
    ]
    return [
        b"%b%b%b"
        % (_BEGIN, b",".join(label_objects[start:end]), prediction[prediction.rindex(_END) :])
        for prediction, (start, end) in zip(
            json_predictions, itertools.pairwise(predictions.ptr.tolist()), strict=True
        )
    ]


def describe_labels(
    predictions: Predictions,
    chunked: ChunkedRows,
    served: ServedVersion,
    info: LabelInfoOptions | None,
    *,
    explain: bool,
) -> list[bytes] | None:
    """Return the further JSON members of each label found for the rows; None if there are none.

    info  which label info is answered; None: no label info
    """
    parts = []
    if info is not None:
        parts.append(members_of(info, predictions.labels))
    if explain:
        explanations = explain_labels(predictions, chunked, served, info and info.languages)
        parts.append([b'"explanation":%b' % explanation for explanation in explanations])
    return [b",".join(members) for members in zip(*parts, strict=True)] if parts else None


def explain_labels(
    predictions: Predictions,
    chunked: ChunkedRows,
    served: ServedVersion,
    languages: Sequence[str] | None = None,
) -> list[bytes]:
    """Return the JSON of the explanation of each label that was found for the rows.

    languages  of the names of broader concepts; None: the default language, then any

    Every door (predict, batches, files, Python) answers explanations that were made here.
    """
    explanations = []
    describe_feature = _feature_describer(served.features)
    facts = served.info.current
    for row, (start, end) in enumerate(itertools.pairwise(predictions.ptr.tolist())):
        for label in predictions.labels[start:end].tolist():
            explanation = served.predictor.explain(chunked.rows, row, label)
            description: LabelExplanation = (
                _combined(explanation, label, chunked.text(row), served)
                if isinstance(explanation, CombinedExplanation)
                else _explain_trees(explanation, describe_feature)
            )
            if facts is not None:
                description["broader_path"] = facts.broader_path(label, languages)
            explanations.append(dump(description))
    return explanations


def _explain_trees(
    explanation: Explanation | RoutedExplanation, describe_feature: FeatureDescriber
) -> TreesExplanation | LeavesExplanation:
    if isinstance(explanation, RoutedExplanation):
        leaves: list[Any] = [
            {**leaf._asdict(), "path": _path(leaf.path, describe_feature)}
            for leaf in explanation.leaves
        ]
        return LeavesExplanation(leaves=leaves)
    return TreesExplanation(
        trees=[{"path": _path(nodes, describe_feature)} for nodes in explanation.trees]
    )


def _combined(
    explanation: CombinedExplanation, label: int, text: str | None, served: ServedVersion
) -> MembersExplanation:
    """Explain a label of a combined model: its score by each member, and its names in the text.

    There are no names if the text is not available.
    """
    members: list[ExplainedMember] = []
    for number, (manifest, member) in enumerate(
        zip(served.opened.manifest.members, explanation.members, strict=True)
    ):
        description: ExplainedMember = {"member": manifest.full_name}
        if member.score is not None and member.rank is not None:
            description |= {"score": member.score, "rank": member.rank}
        if member.why is not None:
            arrays = member_arrays(number, served.opened.arrays)
            description["explanation"] = _explain_trees(
                member.why, _feature_describer(feature_names(manifest.features, arrays))
            )
        members.append(description)
    names: list[ExplainedName] = []
    matcher = getattr(served.featurizer, "names", None)
    if text is not None and explanation.is_named and isinstance(matcher, NameMatcher):
        names = [
            {"name": match.name, "kind": _KINDS[match.kind & KIND_BITS], "words": match.words}
            for match in matcher.explain(text, label)
        ]
    return {"members": members, "names": names}


def _path(nodes: Sequence[PathNode | RoutedStep], describe_feature: FeatureDescriber) -> list[Any]:
    """Return the nodes of a path for JSON: the fields of each, and the names of its features."""
    return [
        node._asdict()
        | {
            "features": [
                {**describe_feature(feature), "contribution": contribution}
                for feature, contribution in node.features
            ]
        }
        for node in nodes
    ]


def _feature_describer(names: FeatureNames | None) -> FeatureDescriber:
    """Return a function that describes features by their names.

    Each name is built once, because explained labels have many features in common.
    """

    @functools.cache
    def describe(feature: int) -> dict[str, str]:
        if names is None:
            return {"feature": str(feature)}
        if names.is_of_vector(feature):
            return {"feature": names.name(feature), "part": "vector"}
        part = {"part": "chars"} if names.is_chars(feature) else {}
        return {"feature": names.name(feature), **part}

    return describe
