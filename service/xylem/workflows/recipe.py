"""The recipe of a model that learns again and again: what it learns from, how, and when.

A library can keep it in git, as TOML. The database has a recipe for each model; a version has the
one that it was made by, without the paths of files.
"""

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from xylem.base import (
    BadData,
    BadParameter,
    LabelRows,
    ParameterFault,
    TableColumns,
    columns_of,
    json_object,
    refuse_special,
    sentence_of,
    unknown,
)
from xylem.workflows.request import TrainRequest
from xylem_store import URI

# The number in the field `recipe`: a release refuses recipes with a higher one.
FORMAT = 1

SOURCES_MAX = 32

# Parameters of the members, unless the recipe has others.
PARAMETERS = {"features.kind": "words+chars", "features.lead": 0}

# Options of how files are read, in the order of `columns_of`.
READING = (
    "text_column",
    "label_column",
    "label_separator",
    "delimiter",
    "label_columns",
    "quote",
    "encoding",
    "join_rows",
    "strict",
    "weight_column",
)

# What stands in TOML, which has no null, for the promotion null.
NEVER = "never"

Measure = Literal["P@1", "P@3", "P@5", "F1@5", "nDCG@5"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class RecipeSource(_Part):
    """A file of rows, and what they teach.

    role  "judge": documents like those that will come. They teach all members and the ranker, and
          a tenth of them is held out to measure on. "members": many weak rows, such as titles,
          which teach a member of their own
    """

    file: str = Field(min_length=1)
    role: Literal["judge", "members"] = "judge"


class Promotion(_Part):
    """The rule by which `latest` moves: a figure, and by how much it must rise at least.

    part          what must be so large: the change itself ("difference"), or an end of its 95%
                  interval. "high" refuses a version only if it is surely worse; "low" promotes it
                  only if it is surely no worse
    least_change  in points of a percent; below 0: by how much the figure may fall
    """

    metric: Measure = "F1@5"
    part: Literal["difference", "low", "high"] = "high"
    least_change: float = 0.0


class Recipe(_Part):
    """What a model learns from, how, and when.

    first_name  as in `CombineRequest`
    reading     how the files are read: the fields of a training job, such as `label_separator`
    parameters  of the trainer of members, and of their features; those of PARAMETERS if left out
    near        whether similar rows help to rank, if that gains
    feedback_days, feedback_weight  the stored rows of feedback that are learnt, and how much each
                counts; of the last days, or all
    thresholds  the F-measure that thresholds are tuned for, on the rows held out; null: untuned
    promotion   null, or NEVER: `latest` moves to the first version only
    keep_texts  whether texts of corrections may be stored, to learn from them
    cron, rows  when it learns again: at the times of a cron line, or after rows of feedback
    """

    recipe: int = FORMAT
    vocabulary: str
    language: str | None = None
    key_kind: str = URI
    first_name: bool = False
    sources: Annotated[tuple[RecipeSource, ...], Field(min_length=1, max_length=SOURCES_MAX)]
    reading: dict[str, Any] = {}
    parameters: dict[str, bool | int | float | str | None] = {}
    candidates: Annotated[int, Field(ge=1, le=1000)] = 50
    beam_width: Annotated[int, Field(ge=1, le=1000)] | None = None
    near: bool = True
    feedback_days: Annotated[int, Field(ge=1, le=36_500)] | None = None
    feedback_weight: float = 1.0
    thresholds: Literal["macro", "micro", "instance"] | None = None
    promotion: Annotated[
        Promotion | None, BeforeValidator(lambda value: None if value == NEVER else value)
    ] = Promotion()
    keep_texts: bool = True
    cron: str | None = None
    rows: int | None = None
    seed: Annotated[int, Field(ge=0, le=(1 << 63) - 1)] = 0

    @classmethod
    def from_json(cls, values: object) -> Self:
        """Return the recipe in a JSON object.

        Raises BadParameter with all that is wrong, and for a recipe of a newer release.
        """
        number = json_object(values).get("recipe", FORMAT)
        if type(number) is not int or number > FORMAT:
            raise BadParameter(
                f"recipe: expected a recipe of format {FORMAT}, found {number!r:.40}: a newer "
                "release wrote it"
            )
        try:
            recipe = cls.model_validate(values)
        except ValidationError as error:
            raise BadParameter.from_faults(
                ParameterFault(".".join(map(str, details["loc"])), sentence_of(details))
                for details in error.errors()
            ) from None
        try:
            LabelRows.weight_of(recipe.feedback_weight)
        except ValueError as error:
            raise BadParameter(f"feedback_weight: {error}") from None
        if recipe.cron is not None and recipe.rows is not None:
            raise BadParameter("cron: expected cron or rows, found both")
        chosen = recipe.training(1).chosen()
        if chosen.vectors is not None and chosen.encoder_name is None:
            raise BadParameter(
                "parameters: expected features.encoder beside parameters of vectors, found none: "
                "a recipe takes no vectors of rows"
            )
        recipe.columns.texts.refuse_unweighted()
        return recipe

    @classmethod
    def read(cls, file: Path) -> Self:
        """Return the recipe in a file of TOML; its files are looked for beside it.

        Raises BadData for what is not TOML, and BadParameter as `from_json`.
        """
        try:
            refuse_special(file)
            values = tomllib.loads(file.read_text())
        except OSError as error:
            raise BadData(f"{file}: expected a readable file, found: {error.strerror}") from None
        except ValueError as error:
            raise BadData(f"{file}: expected TOML, found: {error}") from None
        return cls.from_json(values).with_files(lambda name: str((file.parent / name).resolve()))

    @property
    def files(self) -> list[str]:
        """Return the names of all files: the vocabulary, then the sources."""
        return [self.vocabulary, *(source.file for source in self.sources)]

    def with_files(self, rename: Any) -> Self:
        """Return the same with other names of files, which a function makes of the names here."""
        return self.model_copy(
            update={
                "vocabulary": rename(self.vocabulary),
                "sources": tuple(
                    source.model_copy(update={"file": rename(source.file)})
                    for source in self.sources
                ),
            }
        )

    @property
    def without_paths(self) -> dict[str, Any]:
        """Return the recipe as a version has it: a JSON object with the base names of files."""
        return self.with_files(lambda name: Path(name).name).model_dump(mode="json")

    @property
    def as_toml(self) -> str:
        """Return the text of a file that `read` reads."""
        fields = self.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
        fields |= {} if self.promotion else {"promotion": NEVER}
        return "".join(f"{name} = {_toml(value)}\n" for name, value in fields.items())

    @property
    def columns(self) -> TableColumns:
        """Return how the files are read. Raises BadParameter."""
        for name in self.reading:
            if name not in READING:
                raise BadParameter(f"reading: {unknown(name, READING, 'option')}")
        return columns_of(*(self.reading.get(name) for name in READING))  # type: ignore[arg-type]

    def training(self, threads: int) -> TrainRequest:
        """Return the request for the training of a member."""
        parameters: dict[str, Any] = {**PARAMETERS, **self.parameters}
        if self.language is not None and not {"features.stem", "features.lemmas"} & {*parameters}:
            stemmed = {**parameters, "features.stem": self.language.partition("-")[0]}
            try:
                TrainRequest(trainer="label-tree", data=Path(), parameters=stemmed).chosen()
                parameters = stemmed
            except BadParameter:  # there is no stemmer of that language
                pass
        return TrainRequest(
            trainer="label-tree",
            data=Path(),
            parameters=parameters,
            threads=threads,
            seed=self.seed,
        )


def _toml(value: Any) -> str:
    """Return a JSON value as TOML has it."""
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(name)} = {_toml(part)}" for name, part in value.items())
            + "}"
        )
    return (
        f"[{', '.join(map(_toml, value))}]"
        if isinstance(value, list)
        else json.dumps(value, ensure_ascii=False)
    )
