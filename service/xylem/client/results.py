"""The types that calls return, read from the server's JSON. Unknown fields are ignored."""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar, cast

from xylem.errors import BadAnswer, FieldError

T = TypeVar("T")

ENDED = frozenset({"succeeded", "failed", "cancelled"})  # the final states of a job


@dataclass(frozen=True, slots=True)
class Label:
    """A predicted label; `explanation` only if it was requested.

    uri, notation   from the model's label info, if `language` or `label_info` was requested
    name            in the requested language, or in the next one that has a name
    names, broader  with `label_info`: names by language, and URIs of the broader subjects
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
    """The prediction for one instance, best label first.

    exact              no better label can have been missed
    id                 that of the instance in a batch, if it had one
    no_known_features  the model knows none of the instance's features
    """

    labels: list[Label]
    prediction_id: str
    exact: bool
    id: str | int | None = None
    no_known_features: bool = False
    statistics: dict[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Predictions:
    """The answer of `predict`: a prediction for each instance, in their order."""

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
    """The exact score of a requested label.

    `log_score` is its natural logarithm, None if the score is 0.
    """

    label: str
    id: int
    score: float
    log_score: float | None = None


@dataclass(frozen=True, slots=True)
class InstanceScores:
    """The scores of one instance's labels, in the order of the request, or of the words of a text.

    log_score   of a sequence: the sum over its words
    perplexity  of a sequence: e to the mean of -log_score over its words
    """

    labels: list[LabelScore]
    log_score: float | None = None
    perplexity: float | None = None


@dataclass(frozen=True, slots=True)
class Scores:
    """The answer of `score`: an entry for each instance, in their order."""

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
    """An error in the place of a prediction, for an instance of a batch that cannot be used.

    line  its number in the whole input, from 1
    id    that of the instance, if it had one
    """

    line: int
    code: str
    detail: str
    errors: tuple[FieldError, ...] = ()
    id: str | int | None = None


@dataclass(frozen=True, slots=True)
class FeedbackVerdict:
    """The outcome of an event: applied, duplicate, late or rejected.

    docs/feedback.md has the reasons.
    """

    event_id: str | None
    result: str
    reason: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Feedback:
    """The answer of `feedback`: the outcome of each event, in their order."""

    model: str
    version: int
    threshold_epoch: int | None
    results: list[FeedbackVerdict]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model.

    versions  the numbers of its versions
    aliases   the version that each alias names
    splits    the canary and the shadow of the aliases that have one
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
    """A label's threshold, and the counts of events that it is based on."""

    label: str
    id: int
    threshold: float
    hits: int
    marks: int


@dataclass(frozen=True, slots=True)
class Thresholds:
    """A page of a version's thresholds.

    objective  the F-measure that they are tuned for: macro, micro or instance
    limit      the most labels of a row at one threshold for all; None for macro
    """

    n_labels: int
    labels: list[LabelThreshold]
    next_offset: int | None = None
    objective: str = "macro"
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a job: `done` of `total` in a phase; None is unknown."""

    phase: str | None = None
    done: int | None = None
    total: int | None = None
    rows_per_second: float | None = None
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True)
class Promotion:
    """Whether a trained version was promoted, and the reasons.

    alias     the alias that the rule is about
    baseline  the version that it was compared with; None if there was none
    """

    promoted: bool | None = None
    reasons: list[Any] = field(default_factory=list)
    alias: str | None = None
    baseline: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job: queued, running, succeeded, failed or cancelled.

    error      the reason of a failure; `error_code` is stable
    promotion  of a training with a rule, once that was judged
    result     its outcome: figures of a training or tuning, counts of a batch
    attempts   how often a worker has begun it; `worker` is the present or last one
    request    the body that was submitted
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
        """Whether the state is final."""
        return self.state in ENDED


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of the server's data directory."""

    name: str
    bytes: int | None = None


def read_as(kind: type[T], body: bytes) -> T:
    """Return a value of a type of this module from JSON. Raises BadAnswer."""
    try:
        return cast(T, _reader(cast(Hashable, kind))(body))
    except ValueError as error:  # of pydantic, too
        faults = getattr(error, "errors", None)
        first_fault = faults(include_input=False, include_url=False)[0] if faults else {}
        place = ".".join(map(str, first_fault.get("loc", ())))
        reason = first_fault.get("msg", "another answer")
    raise BadAnswer(
        f"expected the JSON of {kind.__name__}, found at {place or 'its top'}: {reason}"
    )


_READERS_MAX = 64  # more than there are kinds of results


@lru_cache(_READERS_MAX)
def _reader(kind: Any) -> Callable[[bytes], Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind).validate_json
