"""Answer score requests: exact probabilities of the labels that a request names."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from xylem.base import BadInput, BadInstance, Limits, StageTimings, offsets
from xylem.engine import ContextFeaturizer
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
from xylem_store import F32, I32, I64, name_of

SHORT_LABELS = 64  # labels of a request that are scored in a fraction of a millisecond
_LINE: TypeAdapter[AnyScored] = TypeAdapter(ScoredInstance)


class ScoreDialect(Dialect[ScoreRequest]):
    """Reads and answers requests for the scores of labels, in JSON."""

    def read(self, body: Body, limits: Limits) -> ScoreRequest:
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

        is_at_once = is_short(query, served) and not served.featurizer.encoders
        return answer() if is_at_once else Longer(answer)


SCORES = ScoreDialect()


def score_instances(
    instances: Sequence[AnyScored], served: ServedVersion, limits: Limits
) -> list[InstanceScores]:
    """Return the scores of each instance's labels, or of its words for a sequence.

    Raises as `ScoreDialect.answer_read`.
    """
    scores_by_instance: dict[int, InstanceScores] = {}
    with_labels: list[int] = []
    for i, instance in enumerate(instances):
        if isinstance(instance, ScoredText) and instance.sequence:
            scores_by_instance[i] = _score_sequence(instance.text, i, served, limits)
        else:
            with_labels.append(i)
    rows = to_rows([instances[i] for i in with_labels], served.featurizer)
    ids, label_ptr = _label_ids(instances, with_labels, served, limits)
    scored = served.predictor.score_labels(rows, label_ptr, ids)
    for i, (low, high) in zip(with_labels, itertools.pairwise(label_ptr.tolist()), strict=True):
        scores_by_instance[i] = InstanceScores(
            labels=_labels(served, ids[low:high], scored.scores[low:high], scored.logs[low:high])
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
    check_not_denied(served, labels.indices, lambda i: f"{path}.words[{i}]")
    scored = served.predictor.score_labels(rows, labels.indptr, labels.indices)
    total = float(scored.logs.astype(np.float64).sum())
    is_known = bool(np.isfinite(total))
    return InstanceScores(
        labels=_labels(served, labels.indices, scored.scores, scored.logs),
        log_score=np.float32(total) if is_known else None,
        perplexity=np.float32(np.exp(min(-total / len(labels.indices), 80.0)))
        if is_known
        else None,
    )


def is_short(query: ScoreRequest, served: ServedVersion) -> bool:
    """Return whether a request is so short that a thread would only delay its answer."""
    n_items = len(query.instances)
    for instance in query.instances:
        n_items += len(instance.labels) + n_items_of(instance, served.featurizer) // 32
        if isinstance(instance, ScoredText) and instance.sequence:
            n_items += len(instance.text)
    return n_items <= SHORT_LABELS and not served.info.searches(
        [item for instance in query.instances for item in instance.labels]
    )


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


def _label_ids(
    instances: Sequence[AnyScored], chosen: Sequence[int], served: ServedVersion, limits: Limits
) -> tuple[I32, I64]:
    """Return the labels of some instances, and the offsets of each instance's labels.

    Those of branches that are denied or deprecated are left out. Raises UnknownLabel, with the
    place of the label, and LimitExceeded for branches of too many labels.
    """
    lists = [instances[i].labels for i in chosen]
    starts = offsets(map(len, lists))

    def place(item: int) -> str:
        row = int(np.searchsorted(starts, item, "right")) - 1
        return f"instances[{chosen[row]}].labels[{item - starts[row]}]"

    items = list(itertools.chain.from_iterable(lists))
    ids, ptr = served.info.label_ids(
        items, place, None if served.denied is None else served.denied.allowed
    )
    if len(ids) > len(items):
        refuse_beyond(len(ids), "labels to score", "answer_labels_max", limits, "instances")
    check_not_denied(
        served, ids, lambda label: place(int(np.searchsorted(ptr, label, "right")) - 1)
    )
    return ids, ptr[starts]


def _labels(served: ServedVersion, ids: I32, scores: F32, logs: F32) -> list[Any]:
    return [
        {
            "label": name_of(served.labels, label),
            "id": label,
            "score": score,
            "log_score": log if np.isfinite(log) else None,
        }
        for label, score, log in zip(ids.tolist(), scores, logs, strict=True)
    ]
