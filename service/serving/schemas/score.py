"""Score requests and lines: instances with the labels whose probabilities are asked for, and the answers."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypeAlias

from pydantic import Discriminator, Field, Tag, ValidationInfo, model_validator
from typing_extensions import TypedDict

from service.base.faults import fault
from service.serving.schemas.instances import (
    NAMED,
    SPARSE,
    TEXT,
    NamedInstance,
    RequestModel,
    SparseInstance,
    TextInstance,
    kind_of,
)
from service.serving.schemas.limits import AtMost, check_limit
from service.serving.schemas.predict import LabelList
from service.serving.schemas.predictions import Float32, VersionAnswer


class _Named(RequestModel):
    """The labels of an instance."""

    labels: LabelList = Field(description="names of labels; one may stand twice")


class ScoredText(TextInstance):
    """A text and labels, or of a model of next words a text whose own words are scored."""

    labels: LabelList = Field(default=[], description="names of labels; one may stand twice")
    sequence: bool = Field(
        default=False,
        description="models of next words only: score each word of the text, and its end, after those before",
    )

    @model_validator(mode="after")
    def _either(self) -> ScoredText:
        if self.sequence == ("labels" in self.model_fields_set):
            found = "both" if self.sequence else "neither"
            raise fault(f"expected labels or sequence: true, found {found}")
        return self


class ScoredSparse(SparseInstance, _Named):
    """A sparse row and labels."""


class ScoredNamed(NamedInstance, _Named):
    """Named features and labels."""


ScoredInstance: TypeAlias = Annotated[
    Annotated[ScoredText, Tag(TEXT)]
    | Annotated[ScoredSparse, Tag(SPARSE)]
    | Annotated[ScoredNamed, Tag(NAMED)],
    Discriminator(kind_of),
]
AnyScored: TypeAlias = ScoredText | ScoredSparse | ScoredNamed


class ScoreRequest(RequestModel):
    """Instances, each with labels."""

    instances: Annotated[list[ScoredInstance], AtMost("instances_max", "instances")] = Field(
        description="texts, sparse rows or named features, as the model was trained on, each with labels",
        json_schema_extra={"minItems": 1},
    )

    @model_validator(mode="after")
    def _check_instances(self, info: ValidationInfo) -> ScoreRequest:
        if not self.instances:
            raise fault("expected at least one instance, found none", "instances")
        n_labels = sum(len(instance.labels) for instance in self.instances)
        check_limit(n_labels, "labels to score", "answer_labels_max", info, "instances")
        return self


class LabelScore(TypedDict):
    """A label with its exact score."""

    label: str
    id: int
    score: Annotated[Float32, Field(description="the label's probability; of decision trees its mean share")]
    log_score: Annotated[Float32 | None, Field(description="its natural logarithm; null where it is 0")]


class InstanceScores(TypedDict):
    """The labels of one instance, in the order in which they were named; or the words of a text."""

    labels: list[LabelScore]
    log_score: Annotated[NotRequired[Float32 | None], Field(description="sequence: the sum of its words'")]
    perplexity: Annotated[
        NotRequired[Float32 | None], Field(description="sequence: e to the mean of -log_score over its words")
    ]


class ScoreAnswer(VersionAnswer):
    """The scores of each instance's labels."""

    scores: list[InstanceScores]
