"""What calls return: plain data, read from the server's JSON. Unknown fields are passed over."""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar, cast

from xylem.errors import BadAnswer, FieldError

T = TypeVar("T")

ENDED = frozenset({"succeeded", "failed", "cancelled"})
"""The states of a job that nothing follows."""


@dataclass(frozen=True, slots=True)
class Label:
    """A predicted label; `explanation` only where it was asked for.

    uri, notation   of the model's label info, where `language` or `label_info` was asked for
    name            in the language that was asked for
    names, broader  with `label_info`: names by language, and URIs of the subjects above
    """

    label: str
    id: int
    score: float
    explanation: dict[str, Any] | None = None
    uri: str | None = None
    notation: str | None = None
    name: str | None = None
    names: dict[str, str] = field(default_factory=dict)
    broader: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is predicted for one instance, best label first.

    exact              no better label can have been missed
    id                 of the line, in a batch, if it had one
    no_known_features  the model knows nothing of the instance
    """

    labels: list[Label]
    prediction_id: str
    exact: bool
    id: str | int | None = None
    no_known_features: bool = False
    statistics: dict[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Predictions:
    """The answer of predict: a prediction an instance, in their order."""

    model: str
    version: int
    threshold_epoch: int | None
    predictions: list[Prediction]

    def __iter__(self) -> Iterator[Prediction]:
        return iter(self.predictions)

    def __len__(self) -> int:
        return len(self.predictions)

    def __getitem__(self, place: int) -> Prediction:
        return self.predictions[place]


@dataclass(frozen=True, slots=True)
class LabelScore:
    """The exact score of a label that was named; `log_score` is its
    natural logarithm, None where it is 0.
    """

    label: str
    id: int
    score: float
    log_score: float | None = None


@dataclass(frozen=True, slots=True)
class InstanceScores:
    """The scores of one instance's labels, in the order in which
    they were named, or of a text's words.

    log_score   of a sequence: the sum of its words'
    perplexity  of a sequence: e to the mean of -log_score over its words
    """

    labels: list[LabelScore]
    log_score: float | None = None
    perplexity: float | None = None


@dataclass(frozen=True, slots=True)
class Scores:
    """The answer of score: an entry an instance, in their order."""

    model: str
    version: int
    scores: list[InstanceScores]

    def __iter__(self) -> Iterator[InstanceScores]:
        return iter(self.scores)

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, place: int) -> InstanceScores:
        return self.scores[place]


@dataclass(frozen=True, slots=True)
class LineError:
    """What stands in the place of a prediction for an instance of a batch that cannot be used.

    line  of the whole input, from 1
    id    of the instance, if it had one
    """

    line: int
    code: str
    detail: str
    errors: tuple[FieldError, ...] = ()
    id: str | int | None = None


@dataclass(frozen=True, slots=True)
class FeedbackVerdict:
    """What became of an event: applied, duplicate, late or
    rejected; docs/feedback.md has the reasons.
    """

    event_id: str | None
    result: str
    reason: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Feedback:
    """The answer of feedback: what became of each event, in their order."""

    model: str
    version: int
    threshold_epoch: int | None
    results: list[FeedbackVerdict]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model, its versions, which of them each alias names, and the
    canary and shadow of those that have.
    """

    name: str
    versions: list[int]
    aliases: dict[str, int]
    splits: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelDetails(ModelInfo):
    """A model; `version_details` describes its versions, newest first."""

    version_details: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LabelThreshold:
    """A label's threshold, and the events that it rests on."""

    label: str
    id: int
    threshold: float
    hits: int
    marks: int


@dataclass(frozen=True, slots=True)
class Thresholds:
    """A page of a version's thresholds."""

    n_labels: int
    labels: list[LabelThreshold]
    next_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is: `done` of `total` in a phase; what is not known is None."""

    phase: str | None = None
    done: int | None = None
    total: int | None = None
    rows_per_second: float | None = None
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True)
class Promotion:
    """Whether a trained version was promoted, and why, or why not.

    alias     that the rule is about
    baseline  the version that was compared with; None: there was none
    """

    promoted: bool | None = None
    reasons: list[Any] = field(default_factory=list)
    alias: str | None = None
    baseline: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job of training, threshold-tuning or batch: queued,
    running, succeeded, failed or cancelled.

    error      why it failed; `error_code` is stable
    promotion  of a training with a rule, once that was judged
    result     what it found: figures of a training or tuning, counts of a batch
    attempts   how often a worker has begun it; `worker` has it, or had it last
    request    what was asked for
    """

    id: str
    kind: str
    state: str
    model: str | None = None
    version: int | None = None
    progress: Progress | None = None
    error: str | None = None
    error_code: str | None = None
    created: str | float | None = None
    started: str | float | None = None
    ended: str | float | None = None
    promotion: Promotion | None = None
    result: dict[str, Any] | None = None
    attempts: int = 0
    worker: str | None = None
    cancel_asked: bool = False
    request: dict[str, Any] | None = None

    @property
    def is_ended(self) -> bool:
        """Whether nothing follows this state."""
        return self.state in ENDED


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of the server's data directory."""

    name: str
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Models:
    """The answer that lists models."""

    models: list[ModelInfo]


@dataclass(frozen=True, slots=True)
class Jobs:
    """The answer that lists jobs."""

    jobs: list[Job]


@dataclass(frozen=True, slots=True)
class DataFiles:
    """The answer that lists files."""

    files: list[DataFile]


def read_as(kind: type[T], body: bytes) -> T:
    """Return a value of a type of this file from JSON. Raises BadAnswer."""
    try:
        value: T = _reader(cast(Hashable, kind))(body)
        return value
    except ValueError as error:  # pydantic's too
        faults = getattr(error, "errors", None)
        first = faults(include_input=False, include_url=False)[0] if faults else {}
        place = ".".join(map(str, first.get("loc", ())))
        reason = first.get("msg", "another answer")
    raise BadAnswer(
        f"expected the JSON of {kind.__name__}, found at {place or 'its top'}: {reason}"
    )


@lru_cache(64)
def _reader(kind: Any) -> Callable[[bytes], Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind).validate_json
