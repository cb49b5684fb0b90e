"""The JSON of predict and score: requests, lines of a batch, and parts of answers."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NotRequired, Self, TypeAlias

import numpy as np
from pydantic import (
    Discriminator,
    Field,
    GetPydanticSchema,
    PlainValidator,
    Tag,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import core_schema
from typing_extensions import TypedDict

from xylem.base import WEIGHT_MAX, WEIGHT_MIN, Limits, fault, what_is
from xylem.engine import Branch
from xylem.serving.chunks import CHUNK_CHARACTERS_MIN
from xylem.serving.schemas.fields import (
    LIMIT_KEY,
    NAMED_FEATURES,
    SPARSE,
    TEXT,
    TEXT_FIELDS,
    AtMost,
    FieldsInstance,
    Instance,
    NamedInstance,
    RequestModel,
    SparseInstance,
    TextInstance,
    check_limit,
    exceeded,
    kind_of,
    longest,
    utf8_length,
)

# A number, written with just enough digits to tell it from other float32 numbers.
Float32: TypeAlias = Annotated[
    np.float32, GetPydanticSchema(lambda _, __: core_schema.float_schema())
]


class VersionAnswer(TypedDict):
    """The version that answered."""

    model: str
    version: int


class FeatureContribution(TypedDict):
    """The contribution of a feature to a node's margin: its value times its weight."""

    feature: Annotated[str, Field(description="its name, or its id if it has none")]
    contribution: Float32
    part: Annotated[
        NotRequired[Literal["chars"]],
        Field(
            description="present if the feature is an n-gram of characters within a word, "
            "including blanks"
        ),
    ]


class ExplainedNode(TypedDict):
    """A node of a path, and the features that added most to its margin or took most away."""

    node: int
    probability: Annotated[Float32, Field(description="of the node given its parent")]
    score: Annotated[
        Float32, Field(description="the product of the probabilities to here, not calibrated")
    ]
    features: list[FeatureContribution]


class ExplainedTree(TypedDict):
    """A tree's path to a label, from below the root to the leaf.

    It is empty if the tree lacks the label.
    """

    path: list[ExplainedNode]


class _Explanation(TypedDict):
    """The part of an explanation that comes from the label info of the model."""

    broader_path: Annotated[
        NotRequired[list[dict[str, str | None]]],
        Field(
            description="with label info: uri and name of the concepts above the label, from the "
            "top down, the first one at each step"
        ),
    ]


class TreesExplanation(_Explanation):
    """An explanation of a label's score by a model of label trees."""

    trees: list[ExplainedTree]


class RoutedNode(TypedDict):
    """A node on an instance's way down a decision tree; the margin is why it was sent there."""

    node: int
    margin: Float32
    features: list[FeatureContribution]


class ExplainedLeaf(TypedDict):
    """A leaf that an instance reached, and that has the label.

    The label's score is the sum of weight * value over the leaves.
    """

    tree: int
    leaf: int
    value: Annotated[Float32, Field(description="of the label in the leaf")]
    weight: Annotated[Float32, Field(description="of the leaf")]
    path: list[RoutedNode]


class LeavesExplanation(_Explanation):
    """An explanation of a label's score by a model of decision trees."""

    leaves: list[ExplainedLeaf]


class ExplainedMember(TypedDict):
    """The part of a member of a combined version in a label's score."""

    member: Annotated[str, Field(description="model and version")]
    score: Annotated[
        NotRequired[Float32], Field(description="present if the member proposed the label")
    ]
    rank: Annotated[NotRequired[int], Field(description="among the member's labels; 1 is the best")]
    explanation: Annotated[
        NotRequired[TreesExplanation | LeavesExplanation],
        Field(description="present if the member has the label"),
    ]


class ExplainedName(TypedDict):
    """A name of a label that was found in the text."""

    name: str
    kind: Literal["preferred", "alternative", "hidden"]
    words: Annotated[list[str], Field(description="words of the text")]


class MembersExplanation(_Explanation):
    """An explanation of a label's score by a combined model: its members, and names in the text."""

    members: list[ExplainedMember]
    names: list[ExplainedName]


# An explanation of a label's score.
LabelExplanation: TypeAlias = TreesExplanation | LeavesExplanation | MembersExplanation


TUNED: Literal["tuned"] = "tuned"
PROPENSITY: Literal["propensity"] = "propensity"

_NUMBERS = (int, float)


def _check_threshold(value: Any) -> float | Literal["tuned"] | None:
    if value is None or value == TUNED:
        return value  # type: ignore[no-any-return]
    if type(value) not in _NUMBERS or not 0 <= value <= 1:
        raise fault(f'expected null, a number from 0 to 1, or "tuned", found {what_is(value)}')
    return float(value)


def _check_weights(
    value: Any, info: ValidationInfo
) -> Literal["propensity"] | dict[str, float] | None:
    if value is None or value == PROPENSITY:
        return value  # type: ignore[no-any-return]
    if type(value) is not dict:
        raise fault(f'expected null, "propensity" or an object, found {what_is(value)}')
    check_limit(len(value), "labels", "label_list_max", info)
    check_limit(longest(value), "bytes of a name", "name_bytes_max", info)
    for name, weight in value.items():
        if type(weight) not in _NUMBERS or not WEIGHT_MIN <= weight <= WEIGHT_MAX:
            raise fault(
                f"expected a number from {WEIGHT_MIN:g} to {WEIGHT_MAX:g}, found {what_is(weight)}",
                name,
            )
    return value


def _check_deadline(value: Any, info: ValidationInfo) -> int | None:
    if value is None:
        return None
    if type(value) is not int or value < 1:
        raise fault(f"expected null or an integer of at least 1, found {what_is(value)}")
    seconds = None if info.context is None else info.context.request_seconds_max
    if seconds is not None and value > seconds * 1000:
        raise exceeded(
            f"expected at most {int(seconds * 1000)} milliseconds (limit request_seconds_max), "
            f"found {value}"
        )
    return value


def null_or(types: Sequence[type], expected: str) -> PlainValidator:
    """Return a validator for a value that is null, or exactly of one of `types`.

    expected   what is expected, in words, for the error
    """

    def check(value: Any) -> Any:
        if value is not None and type(value) not in types:
            raise fault(f"expected {expected}, found {what_is(value)}")
        return value

    return PlainValidator(check)


def _or_null(*schemas: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [*schemas, {"type": "null"}]})


Threshold: TypeAlias = Annotated[
    float | Literal["tuned"] | None,
    PlainValidator(_check_threshold),
    _or_null({"type": "number", "minimum": 0, "maximum": 1}, {"type": "string", "const": TUNED}),
]
LabelWeights: TypeAlias = Annotated[
    Literal["propensity"] | dict[str, float] | None,
    PlainValidator(_check_weights),
    _or_null(
        {"type": "string", "const": PROPENSITY},
        {
            "type": "object",
            "additionalProperties": {
                "type": "number",
                "minimum": WEIGHT_MIN,
                "maximum": WEIGHT_MAX,
            },
            LIMIT_KEY: "label_list_max",
        },
    ),
]
DeadlineMs: TypeAlias = Annotated[
    int | None, PlainValidator(_check_deadline), _or_null({"type": "integer", "minimum": 1})
]
Identity: TypeAlias = Annotated[
    str | int | None,
    null_or((str, int), "a string or an integer"),
    _or_null({"type": "string"}, {"type": "integer"}),
]
LabelList: TypeAlias = Annotated[
    list[str],
    AtMost("label_list_max", "labels"),
    AtMost("name_bytes_max", "bytes of a name", longest),
]
_UNDER = "under"


def _check_label_items(value: Any, validate: Callable[[Any], list[str]]) -> list[str | Branch]:
    """Return a list of labels, in which objects {"under": CONCEPT} are branches.

    A list without objects costs nothing more.
    """
    try:
        return [*validate(value)]
    except ValidationError:
        if type(value) is not list or dict not in map(type, value):
            raise
    # as their concepts, branches meet the limits of names, and have their places in errors
    are_branches = [type(item) is dict and item.keys() == {_UNDER} for item in value]
    items = zip(value, are_branches, strict=True)
    names = validate([item[_UNDER] if is_branch else item for item, is_branch in items])
    return [
        Branch(name) if is_branch else name
        for name, is_branch in zip(names, are_branches, strict=True)
    ]


# Labels, or names of the label info, and branches of its concepts.
LabelItems: TypeAlias = Annotated[
    list[str | Branch],
    GetPydanticSchema(
        lambda _, handler: core_schema.no_info_wrap_validator_function(
            _check_label_items,
            handler.generate_schema(LabelList),
            # pydantic writes a list of any items: branches as objects
            serialization=core_schema.plain_serializer_function_ser_schema(list),
        )
    ),
    WithJsonSchema(
        {
            "type": "array",
            "items": {
                "anyOf": [
                    {"type": "string"},
                    {
                        "type": "object",
                        "properties": {_UNDER: {"type": "string"}},
                        "required": [_UNDER],
                        "additionalProperties": False,
                    },
                ]
            },
            LIMIT_KEY: "label_list_max",
        }
    ),
]


class InfoQuery(RequestModel):
    """The options in the query string of a predict request: which label info is answered."""

    language: (
        Annotated[str, AtMost("name_bytes_max", "bytes of a language", utf8_length)] | None
    ) = Field(
        default=None,
        description="whether each label gets its URI, its notation and its name in the first of "
        "these languages that has one, as fi,sv,* (* is any), from the model's label info; a "
        "single language is followed by any. Null for what the label info does not have",
    )
    label_info: bool = Field(
        default=False,
        description="whether each label gets its URI, its notation, its names in all "
        "languages and the URIs of the subjects above it, from the model's label info",
    )


class Options(InfoQuery):
    """Options to predict; `xylem.serving.rows` turns these into the engine's options."""

    top_r: Annotated[int, Field(ge=1), AtMost("top_r_max", "top_r")] = Field(
        default=5, description="labels an instance gets, at most"
    )
    threshold: Threshold = Field(
        default=None,
        description="the least score of a label; tuned: the thresholds of the version, with their "
        "limit, and top_r is only an upper bound",
    )
    beam_width: Annotated[int, Field(ge=1), AtMost("beam_width_max", "beam_width")] = Field(
        default=10,
        description="how many nodes the search keeps on each level; more are slower and closer "
        "to exact. With tuned thresholds it keeps only nodes that lead to labels that pass, and "
        "this many on a level on average",
    )
    exact: bool = Field(
        default=False,
        description="whether the labels are surely those of the highest scores, and all that "
        "reach their thresholds, however long the search takes; with a number as threshold the "
        "search is always exact",
    )
    allow_labels: LabelItems | None = Field(
        default=None,
        description="the only labels that may be predicted: labels or names of the label info; "
        "{under} is a concept and all below it",
    )
    deny_labels: LabelItems | None = Field(
        default=None, description="labels that may not be predicted, in the same form"
    )
    explain: bool = Field(
        default=False,
        description="whether each label gets the nodes on its paths and the features that "
        "counted, and in a combined version what each member said and the names in the text; in "
        "predict, instances times top_r may be at most the limit explained_labels_max",
    )
    deadline_ms: DeadlineMs = Field(
        default=None,
        description="milliseconds after which the search stops; the answer is then what is "
        "certain by then, with exact: false. At most the limit request_seconds_max",
    )
    label_weights: LabelWeights = Field(
        default=None,
        description="labels are ranked by probability times weight, and that is their score; "
        "labels that are not named have weight 1; propensity: the weight is the inverse of the "
        "probability that a true label is annotated, which favours rare labels. Thresholds apply "
        "to the probability. The probability in the product is not calibrated",
    )
    statistics: bool = Field(
        default=False,
        description="whether a prediction says how many nodes were scored, and how many "
        "bytes of their weights were read",
    )
    chunk_characters: Annotated[int, Field(ge=CHUNK_CHARACTERS_MIN)] | None = Field(
        default=None,
        description="longer texts are divided between words into chunks of at most this many "
        "characters; a label's score is the mean of its scores in the chunks. Not together with "
        "exact, explain or label_weights",
    )

    @model_validator(mode="after")
    def _check_chunks(self) -> Self:
        for name in () if self.chunk_characters is None else ("exact", "explain", "label_weights"):
            if getattr(self, name):
                raise fault(
                    f"chunk_characters cannot be used with {name}, which needs a single search",
                    "chunk_characters",
                )
        return self

    def block_rows(self, limits: Limits) -> int:
        """Return the most lines of a batch to answer together, for a bounded number of labels.

        Explained labels are fewer, because an explanation is a hundred times as long as a label.
        """
        labels_max = limits.explained_labels_max if self.explain else limits.answer_labels_max
        return max(1, min(limits.block_rows_max, labels_max // self.top_r))


class PredictRequest(Options):
    """Instances, and options to predict them."""

    instances: Annotated[list[Instance], AtMost("instances_max", "instances")] = Field(
        description="texts, their fields, sparse rows or named features, as the model was "
        "trained on",
        json_schema_extra={"minItems": 1},
    )

    @model_validator(mode="after")
    def _check_instances(self, info: ValidationInfo) -> Self:
        if not self.instances:
            raise fault("expected at least one instance, found none", "instances")
        n_labels = len(self.instances) * self.top_r
        check_limit(n_labels, "labels asked for", "answer_labels_max", info, "top_r")
        if self.explain:
            check_limit(n_labels, "labels to explain", "explained_labels_max", info, "explain")
        return self


class _Line(RequestModel):
    """The fields of a batch's line besides the instance. Labels and other fields are ignored.

    So a training file can be sent as a batch, and an export of a database that has more fields.
    """

    id: Identity = Field(default=None, description="repeated by the answer")
    labels: Any = Field(default=None, description="the labels of a labelled file; they are ignored")


class TextLine(_Line, TextInstance, extra="ignore"):
    """A line of a batch that has a text."""


class SparseLine(_Line, SparseInstance, extra="ignore"):
    """A line of a batch that has a sparse row."""


class NamedLine(_Line, NamedInstance, extra="ignore"):
    """A line of a batch that has named features."""


class FieldsLine(_Line, FieldsInstance):
    """A line of a batch that has a text in several fields, such as a title and a body."""


BatchLine: TypeAlias = Annotated[
    Annotated[TextLine, Tag(TEXT)]
    | Annotated[SparseLine, Tag(SPARSE)]
    | Annotated[NamedLine, Tag(NAMED_FEATURES)]
    | Annotated[FieldsLine, Tag(TEXT_FIELDS)],
    Discriminator(kind_of),
]
AnyLine: TypeAlias = TextLine | SparseLine | NamedLine | FieldsLine


class _WithLabels(RequestModel):
    labels: LabelItems = Field(
        description="labels or names of the label info, one may occur twice; {under} is a concept "
        "and all below it"
    )


class ScoredText(TextInstance):
    """A text and labels; or, for a model of next words, a text whose own words are scored."""

    labels: LabelItems = Field(
        default=[],
        description="labels or names of the label info, one may occur twice; {under} is a concept "
        "and all below it",
    )
    sequence: bool = Field(
        default=False,
        description="for models of next words only: score each word of the text given the words "
        "before it, and its end",
    )

    @model_validator(mode="after")
    def _check_fields(self) -> "ScoredText":
        if self.sequence == ("labels" in self.model_fields_set):
            fields_present = "both" if self.sequence else "neither"
            raise fault(f"expected labels or sequence: true, found {fields_present}")
        return self


class ScoredSparse(SparseInstance, _WithLabels):
    """A sparse row and labels."""


class ScoredNamed(NamedInstance, _WithLabels):
    """Named features and labels."""


class ScoredFields(FieldsInstance, _WithLabels):
    """A text in fields, and labels."""


ScoredInstance: TypeAlias = Annotated[
    Annotated[ScoredText, Tag(TEXT)]
    | Annotated[ScoredSparse, Tag(SPARSE)]
    | Annotated[ScoredNamed, Tag(NAMED_FEATURES)]
    | Annotated[ScoredFields, Tag(TEXT_FIELDS)],
    Discriminator(kind_of),
]
AnyScored: TypeAlias = ScoredText | ScoredSparse | ScoredNamed | ScoredFields


class ScoreRequest(RequestModel):
    """Instances, each with labels."""

    instances: Annotated[list[ScoredInstance], AtMost("instances_max", "instances")] = Field(
        description="texts, their fields, sparse rows or named features, as the model was trained "
        "on, each "
        "with labels",
        json_schema_extra={"minItems": 1},
    )

    @model_validator(mode="after")
    def _check_instances(self, info: ValidationInfo) -> "ScoreRequest":
        if not self.instances:
            raise fault("expected at least one instance, found none", "instances")
        check_limit(
            sum(len(instance.labels) for instance in self.instances),
            "labels to score",
            "answer_labels_max",
            info,
            "instances",
        )
        return self


class LabelScore(TypedDict):
    """A label with its exact score."""

    label: str
    id: int
    score: Annotated[
        Float32, Field(description="the label's probability; of decision trees its mean share")
    ]
    log_score: Annotated[
        Float32 | None, Field(description="its natural logarithm; null where it is 0")
    ]


class InstanceScores(TypedDict):
    """The labels of one instance, in the order of the request; or the words of a text."""

    labels: list[LabelScore]
    log_score: Annotated[
        NotRequired[Float32 | None], Field(description="of a sequence: the sum over its words")
    ]
    perplexity: Annotated[
        NotRequired[Float32 | None],
        Field(description="of a sequence: e to the mean of -log_score over its words"),
    ]


class ScoreAnswer(VersionAnswer):
    """The scores of each instance's labels."""

    scores: list[InstanceScores]
