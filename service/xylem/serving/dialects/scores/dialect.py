"""Answer score requests: exact probabilities of the labels that a request names."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from xylem.base import BadInput, BadInstance, Limits, StageTimings, UnknownLabel, offsets
from xylem.engine import ContextFeaturizer, Featurizer
from xylem.serving.batches.lines import Answered, LineBlock, dump, dump_line, value_of
from xylem.serving.dialects.dialect import Body, Dialect, Longer, Reply
from xylem.serving.dialects.predict.schema import (
    AnyScored,
    InstanceScores,
    ScoreAnswer,
    ScoredInstance,
    ScoredText,
    ScoreRequest,
)
from xylem.serving.live.denied import check_not_denied
from xylem.serving.live.served import ServedVersion
from xylem.serving.parse import parse_body, parse_json
from xylem.serving.problems import describe_error
from xylem.serving.rows import n_items_of, to_rows
from xylem.serving.schemas.faults import faults_of
from xylem.serving.schemas.fields import refuse_beyond
from xylem_store import F32, find_all, name_of

SHORT_LABELS = 64  # labels of a request that are scored in a fraction of a millisecond
_LINE: TypeAdapter[AnyScored] = TypeAdapter(ScoredInstance)


class ScoreDialect(Dialect[ScoreRequest]):
    """Reads and answers requests for the scores of labels, in JSON."""

    def read(self, body: Body, limits: Limits) -> ScoreRequest:
        """Read a body."""
        return parse_body(body.content, ScoreRequest, limits)

    def answer_read(
        self, query: ScoreRequest, served: ServedVersion, limits: Limits, timings: StageTimings
    ) -> Reply | Longer:
        """Answer a request that has been read, as `Dialect.answer_read` describes.

        Raises BadInstance, UnknownLabel (which names the place of a label that the version does not
        have, or that the alias denies), and LimitExceeded for texts with too many words.
        """

        def answer(_: object = None) -> Reply:
            score_answer = ScoreAnswer(
                model=served.name,
                version=served.version,
                scores=score_instances(query.instances, served, limits),
            )
            return Reply((dump(score_answer),), len(query.instances))

        is_at_once = is_short(query, served.featurizer) and not served.featurizer.encodes
        return answer() if is_at_once else Longer(answer)


SCORES = ScoreDialect()


def score_instances(
    instances: Sequence[AnyScored], served: ServedVersion, limits: Limits
) -> list[InstanceScores]:
    """Return the scores of each instance's labels, or of its words for a sequence.

    Raises as `ScoreDialect.answer_read`.
    """
    scores_by_instance: dict[int, InstanceScores] = {}
    ids_by_instance: dict[int, list[int]] = {}
    for i, instance in enumerate(instances):
        if isinstance(instance, ScoredText) and instance.sequence:
            scores_by_instance[i] = _score_sequence(instance.text, i, served, limits)
        else:
            ids_by_instance[i] = _ids(instance, i, served)
    rows = to_rows([instances[i] for i in ids_by_instance], served.featurizer)
    label_ptr = offsets(map(len, ids_by_instance.values()))
    scored = served.predictor.score_labels(
        rows,
        label_ptr,
        np.array(list(itertools.chain.from_iterable(ids_by_instance.values())), np.int32),
    )
    for (i, ids), (low, high) in zip(
        ids_by_instance.items(), itertools.pairwise(label_ptr.tolist()), strict=True
    ):
        scores_by_instance[i] = InstanceScores(
            labels=_labels(instances[i].labels, ids, scored.scores[low:high], scored.logs[low:high])
        )
    return [scores_by_instance[i] for i in range(len(instances))]


def _score_sequence(text: str, i: int, served: ServedVersion, limits: Limits) -> InstanceScores:
    """Return the scores of each word of a text, given the words before it, and of its end."""
    path = f"instances[{i}]"
    if not isinstance(served.featurizer, ContextFeaturizer):
        raise BadInstance(
            "expected sequence with a model of next words, found another model"
        ).with_path(f"{path}.sequence")
    rows, labels = served.featurizer.windows_of([text])
    refuse_beyond(rows.n_rows, "words", "answer_labels_max", limits, f"{path}.text")
    ids = labels.indices.tolist()
    check_not_denied(served, ids, f"{path}.words")
    scored = served.predictor.score_labels(rows, labels.indptr, labels.indices)
    total = float(scored.logs.astype(np.float64).sum())
    is_known = bool(np.isfinite(total))
    return InstanceScores(
        labels=_labels(
            [name_of(served.labels, label) for label in ids], ids, scored.scores, scored.logs
        ),
        log_score=np.float32(total) if is_known else None,
        perplexity=np.float32(np.exp(min(-total / len(ids), 80.0))) if is_known else None,
    )


def is_short(query: ScoreRequest, featurizer: Featurizer) -> bool:
    """Return whether a request is so short that a thread would only delay its answer."""
    n_items = len(query.instances)
    for instance in query.instances:
        n_items += len(instance.labels) + n_items_of(instance, featurizer) // 32
        if isinstance(instance, ScoredText) and instance.sequence:
            n_items += len(instance.text)
    return n_items <= SHORT_LABELS


def score_block(block: LineBlock, served: ServedVersion, limits: Limits) -> Answered:
    """Return an answer line for each line of a block: the scores of its labels, or its error."""
    parsed = [value_of(line, limits, _parse) for line in block.lines]
    good: list[AnyScored] = [line for line in parsed if not isinstance(line, BadInput)]
    try:
        scores: list[InstanceScores | BadInput] = [*score_instances(good, served, limits)]
    except BadInput:
        scores = []
        for instance in good:
            try:
                scores += score_instances([instance], served, limits)
            except BadInput as error:
                scores.append(error.without_frames().without("instances[0]"))
    next_scores = iter(scores)
    answers = []
    n_bad = 0
    for number, line in zip(itertools.count(block.first), parsed, strict=False):
        scores_or_fault = line if isinstance(line, BadInput) else next(next_scores)
        if isinstance(scores_or_fault, BadInput):
            n_bad += 1
            answers.append(
                dump_line({"error": {**describe_error(scores_or_fault), "line": number}})
            )
        else:
            answers.append(dump_line(scores_or_fault))
    return Answered(b"".join(answers), len(parsed) - n_bad, n_bad)


def _parse(line: bytes, limits: Limits) -> AnyScored:
    try:
        return _LINE.validate_python(parse_json(line, limits), context=limits)
    except ValidationError as error:
        raise faults_of(error, [ScoredText]) from None


def _ids(instance: AnyScored, i: int, served: ServedVersion) -> list[int]:
    ids: list[int] = find_all(served.labels, instance.labels).tolist()
    if ids and min(ids) < 0:
        j = next(j for j, label in enumerate(ids) if label < 0)
        raise UnknownLabel(
            f"expected a label of the model, found {instance.labels[j]!r:.80}"
        ).with_path(f"instances[{i}].labels[{j}]")
    check_not_denied(served, ids, f"instances[{i}].labels")
    return ids


def _labels(names: Sequence[str], ids: Sequence[int], scores: F32, logs: F32) -> list[Any]:
    return [
        {"label": name, "id": label, "score": score, "log_score": log if np.isfinite(log) else None}
        for name, label, score, log in zip(names, ids, scores, logs, strict=True)
    ]
