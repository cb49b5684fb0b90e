"""What a job of each kind is asked for: one pydantic model a kind, strict, no field but these.

Whether names, trainers and parameters are good is for `service.jobs.kinds` to say.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator

from service.base.columns import COLUMNS_MAX, TableColumns, columns_of
from service.base.faults import fault, what_is
from service.serving.schemas.instances import RequestModel
from service.serving.schemas.predict import Options
from service.workflows.tune import KAPPA_MAX, KAPPA_MIN

Name = Annotated[str, Field(max_length=512)]


def _check_version(value: Any) -> int | str | None:
    """Return a version's number, an alias's name or null; whether it is a good one is seen later."""
    if value is not None and type(value) not in (int, str):
        raise fault(f"expected null, a number or an alias, found {what_is(value)}")
    return value  # type: ignore[no-any-return]


Version = Annotated[int | str | None, PlainValidator(_check_version)]
TuningMethod = Literal["ofo", "fta", "fta-one", "sto", "all"]
EmptyLabels = Literal["one", "zero"]
Kappa = Annotated[float, Field(ge=KAPPA_MIN, le=KAPPA_MAX)]
StartValues = Annotated[list[float], Field(min_length=2, max_length=2)]

CONDITIONS_MAX = 32
PARAMETERS_MAX = 100


def _check_scalar(value: Any) -> bool | int | float | str | None:
    """Return the value of a parameter; whether it is a good one is for its trainer to say."""
    if value is not None and type(value) not in (bool, int, float, str):
        raise fault(f"expected a string, a number, true, false or null, found {what_is(value)}")
    return value  # type: ignore[no-any-return]


def _few(value: Any) -> Any:
    """Return the parameters of a request: of too many, none is looked at."""
    if type(value) is dict and len(value) > PARAMETERS_MAX:
        raise fault(f"expected at most {PARAMETERS_MAX} parameters, found {len(value)}")
    return value


ParameterValue = Annotated[bool | int | float | str | None, PlainValidator(_check_scalar)]


class TuningChoice(RequestModel):
    """How thresholds are tuned; `service.workflows.tune.TuneRequest` says what the fields mean.

    method  "all": the thresholds of ofo are kept, the others are reported
    """

    method: TuningMethod = "ofo"
    empty_labels: EmptyLabels = "zero"
    kappa: Kappa | None = None
    start: StartValues | None = None


class PromotionCondition(RequestModel):
    """A figure of `xylem evaluate`, and by how much it must rise at least; below 0: may fall at most."""

    metric: str
    least_change: Annotated[float, Field(allow_inf_nan=False)] = 0.0


class PromotionRule(RequestModel):
    """An alias, and what must hold for it to move to the new version; no alias: the version is only kept."""

    alias: str | None = "latest"
    conditions: Annotated[list[PromotionCondition], Field(alias="if", max_length=CONDITIONS_MAX)] = Field(
        default_factory=list
    )


class TableFields(RequestModel):
    """Which columns of data files that are tables are read, as the options of the commands say it."""

    text_column: Annotated[list[str], Field(max_length=COLUMNS_MAX)] | None = None
    label_column: Name | None = None
    label_separator: str | None = None

    def columns(self) -> TableColumns:
        """Return the columns. Raises BadParameter."""
        return columns_of(self.text_column, self.label_column, self.label_separator)


class TrainingJob(TableFields):
    """A training that publishes a version.

    valid        a validation file; or
    split        so large a share of the rows of `data` is kept out of the training, to measure on
    parameters   of the trainer by name, of the features as "features.NAME"
    label_names  for numeric data files: line i + 1 is the name of label i
    calibrate    whether scores are fitted to the validation rows, so that they are probabilities
    thresholds   tuned on the validation rows; none: not tuned
    promotion    none: `latest` moves to the version whatever its figures are
    """

    model: str
    trainer: str
    data: Name
    valid: Name | None = None
    split: Annotated[float, Field(ge=0.001, le=0.9)] | None = None
    parameters: Annotated[
        dict[str, ParameterValue], Field(max_length=PARAMETERS_MAX), BeforeValidator(_few)
    ] = Field(default_factory=dict)
    label_names: Name | None = None
    weights: Literal["float32", "bfloat16", "int8"] = "float32"
    seed: Annotated[int, Field(ge=0, le=(1 << 63) - 1)] = 0
    calibrate: bool = False
    thresholds: TuningChoice | None = None
    promotion: PromotionRule | None = None


class TuneThresholdsRequest(TuningChoice, TableFields):
    """A tuning of the thresholds of a version; without `version` of what `latest` names.

    test    another file, to measure on
    shadow  whether what is found is only scored beside the thresholds in force
    """

    data: Name
    version: Version = None
    test: Name | None = None
    shadow: bool = False


class TuningJob(TuneThresholdsRequest):
    """The same as a job, which looks what `latest` names when it begins."""

    model: str


class BatchJob(Options, TableFields):
    """Predictions for the lines of a file or the rows of a table; the options are those of a batch."""

    model: str
    data: Name
    version: Version = None
