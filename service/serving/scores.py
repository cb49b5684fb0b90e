"""A score request -> its answer as JSON: exact probabilities of labels that the request names."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from model_store.names import NameTable, find_name
from service.errors import BadInput, UnknownLabel
from service.serving.lines import Answered, LineBlock, value_of
from service.serving.problems import describe_error
from service.serving.rows import to_rows
from service.serving.schemas.faults import faults_of
from service.serving.schemas.score import (
    AnyScored,
    InstanceScores,
    ScoreAnswer,
    ScoredInstance,
    ScoredText,
    ScoreRequest,
)
from service.serving.served import ServedVersion
from service.serving.wire import dump, dump_line
from service.settings import Limits

SHORT_LABELS = 64
"""Labels of a request that are scored in a fraction of a millisecond."""

_LINE: TypeAdapter[AnyScored] = TypeAdapter(ScoredInstance)


def answer_scores(query: ScoreRequest, served: ServedVersion) -> bytes:
    """Return a request's answer as JSON. Raises BadInstance, and UnknownLabel naming the label's place."""
    scores = score_instances(query.instances, served)
    return dump(ScoreAnswer(model=served.name, version=served.version, scores=scores))


def score_instances(instances: Sequence[AnyScored], served: ServedVersion) -> list[InstanceScores]:
    """Return the scores of each instance's labels. Raises as `answer_scores`."""
    ids = [_ids(instance, i, served.labels) for i, instance in enumerate(instances)]
    rows = to_rows(instances, served.featurizer)
    label_ptr = np.cumsum([0, *map(len, ids)])
    flat = np.array(list(itertools.chain.from_iterable(ids)), np.int32)
    found = served.predictor.score_labels(rows, label_ptr, flat)
    return [
        _named(instance.labels, of_row, found.scores[low:high], found.logs[low:high])
        for instance, of_row, (low, high) in zip(
            instances, ids, itertools.pairwise(label_ptr.tolist()), strict=True
        )
    ]


def is_short(query: ScoreRequest) -> bool:
    """Return whether a thread would only delay the answer."""
    n_labels = sum(len(instance.labels) for instance in query.instances)
    is_light = all(isinstance(each, ScoredText) and len(each.text) < 1024 for each in query.instances)
    return len(query.instances) + n_labels <= SHORT_LABELS and is_light


def score_block(block: LineBlock, served: ServedVersion, limits: Limits) -> Answered:
    """Return an answer line for each line of a block: the scores of its labels, or what is wrong with it."""
    parsed = [_parse(line, limits) for line in block.lines]
    good = [line for line in parsed if not isinstance(line, BadInput)]
    try:
        scores: Sequence[InstanceScores | BadInput] = score_instances(good, served)
    except BadInput:
        scores = [_alone(instance, served) for instance in good]
    of_line = iter(scores)
    answers, n_bad = [], 0
    for number, line in zip(count(block.first), parsed, strict=False):
        found = line if isinstance(line, BadInput) else next(of_line)
        if isinstance(found, BadInput):
            n_bad += 1
            answers.append(dump_line({"error": {**describe_error(found), "line": number}}))
        else:
            answers.append(dump_line(found))
    return Answered(b"".join(answers), len(parsed) - n_bad, n_bad)


def _alone(instance: AnyScored, served: ServedVersion) -> InstanceScores | BadInput:
    try:
        return score_instances([instance], served)[0]
    except BadInput as error:
        return error.at((error.path or "").removeprefix("instances[0]").removeprefix("."))


def _parse(line: bytes | None, limits: Limits) -> AnyScored | BadInput:
    value = value_of(line, limits)
    if isinstance(value, BadInput):
        return value
    try:
        return _LINE.validate_python(value, context=limits)
    except ValidationError as error:
        return faults_of(error, [ScoredText])


def _ids(instance: AnyScored, i: int, labels: NameTable) -> list[int]:
    ids = [find_name(labels, name) for name in instance.labels]
    if ids and min(ids) < 0:
        j = next(j for j, label in enumerate(ids) if label < 0)
        fault = UnknownLabel(f"expected a label of the model, found {instance.labels[j]!r:.80}")
        raise fault.at(f"instances[{i}].labels[{j}]")
    return ids


def _named(
    names: Sequence[str], ids: Sequence[int], scores: NDArray[np.float32], logs: NDArray[np.float32]
) -> InstanceScores:
    labels: list[Any] = [
        {"label": name, "id": label, "score": score, "log_score": log if np.isfinite(log) else None}
        for name, label, score, log in zip(names, ids, scores, logs, strict=True)
    ]
    return InstanceScores(labels=labels)
