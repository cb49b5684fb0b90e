"""The options of a training: each is declared here once, with its type, default, help and rules.

`xylem train` makes its options of these fields, a training job inherits them, the client's list of
fields is generated from the job, and the workflow gets them as a part of `TrainRequest`. They are
in `base` because a command lists its options without importing trainers or workflows.

A rule is a `Requirement` that an option `Needs`. It is checked where the option is used, which is
where its value is not the default. The rules look at `TrainingFacts` alone.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from xylem.base.errors import ParameterFault
from xylem.base.parameters import CommandOption, Expected, Parameters

SEED_MAX = (1 << 63) - 1
# The length of NAME@VERSION, which a store limits further.
REFERENCE_CHARACTERS_MAX = 512


class TrainingFacts(NamedTuple):
    """What the rules of options know about a training before anything is read.

    options             the values of all options, by name
    trainer             its name
    has_valid           whether there are rows to measure on
    from_stdin          whether rows are learnt as they arrive on standard input
    is_stream           whether rows are not held in memory
    in_blocks           whether a stream is read in blocks, which several machines can work on
    scores_sum_to_one   whether the scores of a row's labels are one distribution
    passes              how many passes over the rows the parameters plan; 0: the trainer makes none
    can_add_passes      whether a later training can plan more passes
    learners            the trainers that make passes, in words
    """

    options: Mapping[str, Any]
    trainer: str
    has_valid: bool
    from_stdin: bool
    is_stream: bool
    in_blocks: bool
    scores_sum_to_one: bool
    passes: int
    can_add_passes: bool
    learners: str


@dataclass(frozen=True)
class Requirement:
    """What an option needs besides its own value.

    expected  what is needed, in words; facts in braces are filled in
    missing   returns what the training has instead, in words; None if it has what is needed
    """

    expected: str
    missing: Callable[[TrainingFacts], str | None]


@dataclass(frozen=True, init=False)
class Needs:
    """An annotation of a field: the requirements of the option, which are checked in this order."""

    requirements: tuple[Requirement, ...]

    def __init__(self, *requirements: Requirement) -> None:
        object.__setattr__(self, "requirements", requirements)


def _stream_of(facts: TrainingFacts) -> str | None:
    if facts.from_stdin:
        return "standard input"
    return "a stream" if facts.is_stream else None


def _sum_of(facts: TrainingFacts) -> str | None:
    return f"{facts.trainer}, whose scores sum to 1" if facts.scores_sum_to_one else None


def _used(option: str) -> Callable[[TrainingFacts], str | None]:
    return lambda facts: option if facts.options.get(option) else None


def _wrong_pass(facts: TrainingFacts) -> str | None:
    until = facts.options["until"]
    return None if 1 <= until <= facts.passes else str(until)


def _without_later_passes(facts: TrainingFacts) -> str | None:
    until = facts.options["until"]
    if facts.can_add_passes or until not in (0, facts.passes):
        return None
    return str(until) if until else "none"


A_FILE = Requirement("a file", lambda facts: "standard input" if facts.from_stdin else None)
A_STREAM = Requirement(
    "--stream",
    lambda facts: None if facts.options["stream"] else "rows in memory: xylem thresholds",
)
ROWS_IN_MEMORY = Requirement("rows in memory", _stream_of)
ROWS_IN_MEMORY_OR_PASSES = Requirement(
    "rows in memory, or a trainer that makes passes",
    lambda facts: None if facts.passes else _stream_of(facts),
)
ROWS_THAT_NODES_READ = Requirement(
    "rows in memory, label-tree or ovr",
    lambda facts: None if facts.in_blocks and not facts.from_stdin else _stream_of(facts),
)
VALIDATION_ROWS = Requirement(
    "validation rows to fit to", lambda facts: None if facts.has_valid else "none"
)
A_SCORE_FOR_EACH_LABEL = Requirement("a score for each label by itself", _sum_of)
SPARSE_ROWS = Requirement("sparse rows", _sum_of)
UNCALIBRATED_SCORES = Requirement("uncalibrated scores", _used("calibrate"))
NO_RANKER = Requirement("a version without a ranker", _used("rerank"))
NO_THRESHOLDS = Requirement("thresholds that are tuned later", _used("thresholds"))
A_LEARNER = Requirement("one of {learners}", lambda facts: None if facts.passes else facts.trainer)
A_STATE = Requirement(
    "keep_state, so that a training can go on",
    lambda facts: None if facts.options["keep_state"] else "none",
)
A_PASS = Requirement("a pass of 1 to {passes}", _wrong_pass)
A_PASS_BEFORE_THE_LAST = Requirement(
    "until below the {passes} passes, because {trainer} cannot make more passes later",
    _without_later_passes,
)


def _plain_integer(value: Any) -> Any:
    """Return an integer of numpy as one of Python; other values stay, to be checked."""
    return index(value) if hasattr(value, "__index__") and not isinstance(value, int) else value


class TrainingOptions(BaseModel):
    """The options that every training has: a command, a job, and a call in Python."""

    model_config = ConfigDict(defer_build=True)

    calibrate: Annotated[
        bool,
        Field(description="Fit scores to the validation rows, so that they are probabilities."),
        Needs(VALIDATION_ROWS, A_FILE, A_SCORE_FOR_EACH_LABEL),
        CommandOption(),
    ] = False
    rerank: Annotated[
        bool,
        Field(
            description="Re-rank by similar training rows, if held-out rows gain. Takes five to "
            "eight times as long."
        ),
        Needs(SPARSE_ROWS, UNCALIBRATED_SCORES, ROWS_IN_MEMORY),
        CommandOption(),
    ] = False
    weights: Annotated[
        Literal["float32", "bfloat16", "int8"],
        Field(description="Store weights as float32, bfloat16 or int8; measures what that costs."),
        CommandOption(panel="Published version"),
    ] = "float32"
    keep_rows: Annotated[
        bool,
        Field(description="Store the rows with the version: then xylem extend needs no --rows."),
        Needs(ROWS_IN_MEMORY),
        CommandOption(panel="Published version"),
    ] = False
    base: Annotated[
        str | None,
        Field(
            alias="from",
            max_length=REFERENCE_CHARACTERS_MAX,
            description="Start from a version, NAME or NAME@VERSION, with its features and "
            "parameters: from the weights of label-tree, ovr or plt, on other rows; or from its "
            "state (keep_state), with the passes that are left.",
        ),
        Needs(ROWS_IN_MEMORY_OR_PASSES, NO_RANKER, NO_THRESHOLDS),
        CommandOption(panel="Published version", metavar="NAME[@VERSION]"),
    ] = None
    keep_state: Annotated[
        bool,
        Field(
            description="Store the state of the training, to continue it later: plt with "
            "solver=sgd, huffman-tree, learned-tree, lomtree."
        ),
        Needs(A_LEARNER, NO_RANKER, A_PASS_BEFORE_THE_LAST),
        CommandOption(panel="Published version"),
    ] = False
    until: Annotated[
        int,
        Field(
            ge=0,
            description="With keep_state: stop after this pass; 0: after all planned passes.",
        ),
        Needs(A_LEARNER, A_STATE, A_FILE, A_PASS),
        CommandOption(panel="Published version"),
    ] = 0
    seed: Annotated[
        int,
        Field(ge=0, le=SEED_MAX, description="Same seed, same data: the same model."),
        BeforeValidator(_plain_integer),
        CommandOption(panel="Work"),
    ] = 0


class DirectOptions(TrainingOptions, Parameters):
    """The options of a training that runs where it is called: jobs decide these in other ways."""

    model_config = ConfigDict(populate_by_name=True)

    label_names: Annotated[
        Path | None,
        Field(description="For numeric data files: line i + 1 is the name of label i."),
        Needs(A_FILE),
        CommandOption(panel="Published version", metavar="FILE"),
    ] = None
    stream: Annotated[
        bool,
        Field(
            description="Read the file for each pass, not into memory. Trainers label-tree, ovr, "
            "plt with -p solver=sgd, huffman-tree, learned-tree, ldsm, and lomtree, which learns "
            "each row once."
        ),
        Needs(A_FILE),
        CommandOption(panel="Streams"),
    ] = False
    thresholds: Annotated[
        Literal["ofo"] | None,
        Field(
            description="With --stream and plt: tune thresholds on rows before they are learnt, "
            "and store them."
        ),
        Expected("ofo"),
        Needs(A_STREAM, UNCALIBRATED_SCORES),
        CommandOption(panel="Streams", metavar="ofo"),
    ] = None
    ray: Annotated[
        str | None,
        Field(
            description="Work on the nodes of a Ray cluster: auto, HOST:PORT or ray://HOST:PORT."
        ),
        Needs(ROWS_THAT_NODES_READ),
        CommandOption(panel="Work", metavar="ADDRESS"),
    ] = None
    resume: Annotated[
        bool,
        Field(
            description="Continue a training of this model that was stopped, from the steps that "
            "it stored. With --ray steps are always stored until the version is published, "
            "otherwise with --resume."
        ),
        Needs(ROWS_THAT_NODES_READ),
        CommandOption(panel="Work"),
    ] = False

    def faults(self, facts: TrainingFacts) -> Iterator[ParameterFault]:
        """Yield what each used option needs and the training does not have."""
        for name, field in type(self).model_fields.items():
            if getattr(self, name) == field.default:
                continue
            for needs in field.metadata:
                for requirement in needs.requirements if isinstance(needs, Needs) else ():
                    missing = requirement.missing(facts)
                    if missing is not None:
                        expected = requirement.expected.format_map(facts._asdict())
                        yield ParameterFault(
                            field.alias or name, f"expected {expected}, found {missing}"
                        )
