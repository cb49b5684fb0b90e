"""The parameters of features: one class for each kind of features."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, get_args

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from xylem.base import BadParameter, Expected, ParameterFault, Parameters, Scalar, fault, what_is
from xylem.engine.features.characters import TextReading
from xylem.engine.features.languages import FILE_SUFFIX, check_language
from xylem_store import Corrupt

# How a row is scaled at the end: to length 1, to a sum of absolute values of 1, or not at all.
Norm = Literal["l2", "l1", "none"]

# The prefix of the names of features' parameters; all other parameters are the trainer's.
PREFIX = "features."

# The parameters that say which words count, and in which form.
WORD_FORMS = ("stem", "lemmas", "stop_words")

NGRAM_MAX = 8
CHAR_MAX = 8
N_FEATURES_MAX = 1 << 28
HASHED_FEATURES_MIN = 1 << 8
HASHED_FEATURES_MAX = 1 << 24
LEAD_MAX = 1000
LEAD_WEIGHT = 3
LEAD_WEIGHT_MAX = 100


def _check_share(value: float) -> float:
    if value < 0 or (type(value) is int and value < 1) or (type(value) is float and value > 1):
        raise ValueError("neither a number of rows nor a share of them")
    return value


def _check_power_of_two(value: int) -> int:
    if value & (value - 1):
        raise ValueError("no power of two")
    return value


_CODE = Expected("null or the code of a language, as fi")

Scaling: TypeAlias = Annotated[
    Norm,
    Field(description="row scaling: l2 to length 1, l1 to a sum of absolute values of 1, none"),
]
Sublinear: TypeAlias = Annotated[bool, Field(description="use 1 + ln(count) instead of the count")]
UseIdf: TypeAlias = Annotated[bool, Field(description="weight by the inverse document frequency")]
SmoothIdf: TypeAlias = Annotated[
    bool, Field(description="compute it as if one more text had every n-gram")
]
# A number of rows: an integer is a count, a float a share. 1 is one row, 1.0 is all rows.
RowsOrShare: TypeAlias = Annotated[
    int | float,
    AfterValidator(_check_share),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "number", "minimum": 0, "maximum": 1},
            ]
        }
    ),
    Expected("a number of rows from 1, or a share of them from 0.0 to 1.0"),
]


class _FeatureParameters(Parameters):
    """The base of the kinds' parameters; `kind` is a key of configurations, but no field."""

    name_prefix: ClassVar[str] = PREFIX
    kind: ClassVar[str]

    @model_validator(mode="after")
    def _bounds_fit(self) -> Self:
        for low_name, high_name in (("ngram_min", "ngram_max"), ("char_min", "char_max")):
            low = getattr(self, low_name, 0)
            high = getattr(self, high_name, 0)
            if low > high:
                raise fault(f"expected at least {low_name}, {low}, found {high}", high_name)
        return self


class _TextParameters(_FeatureParameters):
    lowercase: bool = Field(default=True, description="convert the text to lower case first")
    unicode: bool = Field(
        default=True,
        description="normalise to NFC, keep combining marks in their words, and split "
        "scripts that are "
        "written without spaces into characters and pairs of characters",
    )
    clean: bool = Field(
        default=True,
        description="remove soft hyphens, join words divided at the end of a line, and split "
        "ligatures",
    )

    @property
    def reading(self) -> TextReading:
        """Return how the characters of texts are normalised."""
        return TextReading(self.lowercase, self.unicode, self.clean)


class _LeadParameters(_TextParameters):
    """Parameters of kinds that count what a text has: its first words may count several times."""

    lead: int = Field(
        default=10,
        ge=0,
        le=LEAD_MAX,
        description="number of words at the start of a text that count `lead_weight` times; "
        "0: all words count once",
    )
    lead_weight: int = Field(
        default=LEAD_WEIGHT,
        ge=1,
        le=LEAD_WEIGHT_MAX,
        description="how many times the first `lead` words count",
    )


class WordParameters(_TextParameters):
    """Parameters of kinds whose features are words: which words count, and in which form."""

    stem: Annotated[str | None, AfterValidator(partial(check_language, option="stem")), _CODE] = (
        Field(default=None, description="count words by their stems (snowballstemmer)")
    )
    lemmas: Annotated[
        str | None, AfterValidator(partial(check_language, option="lemmas")), _CODE
    ] = Field(default=None, description="count words by their lemmas (simplemma)")
    stop_words: Annotated[
        str | None,
        AfterValidator(partial(check_language, option="stop_words")),
        Expected("null, the code of a language, as fi, or a file .txt"),
    ] = Field(default=None, description="leave out these words, before n-grams are made")

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.stem is not None and self.lemmas is not None:
            raise fault("expected one of stem and lemmas, found both", "lemmas")
        return self


class _NgramParameters(_LeadParameters, WordParameters):
    """Parameters of kinds that count words and word n-grams of a text.

    With `bigrams` the pairs are added to words alone: beside `ngram_max` it would not be clear
    which n-grams have half the weight.
    """

    ngram_min: int = Field(default=1, ge=1, le=NGRAM_MAX, description="shortest n-grams, in words")
    ngram_max: int = Field(default=1, ge=1, le=NGRAM_MAX, description="longest n-grams, in words")
    bigrams: bool = Field(
        default=False,
        description="add pairs of words, at half the weight of words; ngram_min and ngram_max "
        "stay 1",
    )

    @model_validator(mode="after")
    def _one_way_to_pairs(self) -> Self:
        if self.bigrams and (self.ngram_min, self.ngram_max) != (1, 1):
            raise fault("expected ngram_min and ngram_max to be 1 with bigrams", "bigrams")
        return self

    @property
    def ngram_range(self) -> tuple[int, int]:
        """Return the least and the most words of a feature."""
        return self.ngram_min, 2 if self.bigrams else self.ngram_max


class TfidfParameters(_NgramParameters):
    """Words and word n-grams of a text, weighted as by scikit-learn's TfidfVectorizer."""

    kind: ClassVar[str] = "tfidf"

    min_df: RowsOrShare = Field(
        default=1, description="leave out n-grams that occur in fewer texts"
    )
    max_df: RowsOrShare = Field(
        default=1.0, description="leave out n-grams that occur in more texts"
    )
    max_features: Annotated[int, Field(ge=1, le=N_FEATURES_MAX)] | None = Field(
        default=None, description="keep at most this many n-grams, the most frequent ones"
    )
    sublinear_tf: Sublinear = True
    use_idf: UseIdf = True
    smooth_idf: SmoothIdf = True
    norm: Scaling = "l2"


class _CharParameters(_FeatureParameters):
    """Parameters of kinds that count character n-grams within words.

    A word has a blank at both ends.
    """

    char_min: int = Field(
        default=3, ge=1, le=CHAR_MAX, description="shortest n-grams within words, in characters"
    )
    char_max: int = Field(
        default=5, ge=1, le=CHAR_MAX, description="longest n-grams within words, in characters"
    )
    char_min_df: RowsOrShare = Field(
        default=2, description="leave out n-grams of characters that occur in fewer texts"
    )
    char_max_features: int = Field(
        default=1 << 18,
        ge=1,
        le=N_FEATURES_MAX,
        description="keep at most this many n-grams of characters, the most frequent ones",
    )


class CharsParameters(_CharParameters, _LeadParameters):
    """Character n-grams within words, weighted as by scikit-learn's
    TfidfVectorizer(analyzer="char_wb").
    """

    kind: ClassVar[str] = "chars"

    sublinear_tf: Sublinear = True
    use_idf: UseIdf = True
    smooth_idf: SmoothIdf = True
    norm: Scaling = "l2"


class WordsCharsParameters(_CharParameters, TfidfParameters):
    """Words and word n-grams, followed by character n-grams within words; each part is scaled
    alone.
    """

    kind: ClassVar[str] = "words+chars"

    char_share: float = Field(
        default=0.75,
        ge=0,
        le=1,
        description="share of the characters in a row's sum of squares (norm l2) or sum "
        "(l1); words have "
        "the rest",
    )


class AutoParameters(WordParameters):
    """Chooses the kind that predicts best: words, words and pairs, characters, or words and
    characters; and how many first words count more.
    """

    kind: ClassVar[str] = "auto"

    rows: int = Field(
        default=50_000,
        ge=50,
        le=1_000_000,
        description="maximum number of training rows for its trials",
    )
    norm: Scaling = "l2"


class HashingParameters(_NgramParameters):
    """Words and word n-grams of a text, counted by the hash of their bytes, without a vocabulary.

    For named features, the ids are hashes of the names; the parameters of n-grams have no effect
    then.
    """

    kind: ClassVar[str] = "hashing"

    n_features: Annotated[
        int,
        AfterValidator(_check_power_of_two),
        Expected(f"a power of two from {HASHED_FEATURES_MIN} to {HASHED_FEATURES_MAX}"),
    ] = Field(
        default=1 << 20,
        ge=HASHED_FEATURES_MIN,
        le=HASHED_FEATURES_MAX,
        description="number of features",
    )
    signed: bool = Field(
        default=True,
        description="add or subtract, by another bit of the hash, so that collisions cancel "
        "out on average",
    )
    norm: Scaling = "l2"


class NamedParameters(_FeatureParameters):
    """Values by feature name; the names that occur in training are the features."""

    kind: ClassVar[str] = "named"

    norm: Scaling = "l2"


class RawParameters(_FeatureParameters):
    """Values by feature id."""

    kind: ClassVar[str] = "raw"

    norm: Scaling = "l2"


class ContextParameters(_FeatureParameters):
    """Windows of lower-cased words: the words before the next word, each at its place."""

    kind: ClassVar[str] = "context"

    window: int = Field(default=4, ge=1, le=16, description="words before the next one that count")
    min_count: int = Field(
        default=2,
        ge=1,
        le=1_000_000,
        description="words that occur less often become one word, <unk>",
    )
    norm: Literal["none"] = Field(default="none", description="a window is not scaled")


FeatureParameters: TypeAlias = (
    TfidfParameters
    | CharsParameters
    | WordsCharsParameters
    | AutoParameters
    | HashingParameters
    | NamedParameters
    | RawParameters
    | ContextParameters
)

# The parameter class of each kind of features.
PARAMETERS: dict[str, type[FeatureParameters]] = {
    cls.kind: cls for cls in get_args(FeatureParameters)
}


def parameters_of(config: Mapping[str, Any]) -> FeatureParameters:
    """Return the parameters of a configuration as `as_config` makes it.

    Only `kind` is required; other missing keys have their defaults. Raises BadParameter for an
    unknown key or kind, and for a value that has another type or is out of its range.
    """
    values = dict(config)
    return _class_of(values.pop("kind", None))(**values)


def check_features(arguments: Mapping[str, Any]) -> None:
    """Raise BadParameter if these arguments are wrong for any data, before data are read.

    arguments  values by name, without PREFIX. Without `kind` they must be right for at least one
               kind.
    """
    values = dict(arguments)
    kinds = [_class_of(values.pop("kind"))] if "kind" in values else list(PARAMETERS.values())
    refusals = []
    for kind in kinds:
        try:
            kind(**values)
        except BadParameter as error:
            refusals.append(error)
        else:
            return
    raise min(refusals, key=lambda refusal: len(refusal.faults))


def as_config(parameters: _FeatureParameters) -> dict[str, Scalar]:
    """Return the parameters as a manifest has them: the kind, and every field but unused ones.

    Without first words or bigrams their fields are left out, so that releases that do not know
    them can serve the version. A file of stop words is given by its base name.
    """
    config = {"kind": parameters.kind, **parameters.model_dump()}
    if not config.get("lead"):
        config = {name: value for name, value in config.items() if name not in _LEAD}
    if not config.get("bigrams"):
        config.pop("bigrams", None)
    if str(config.get("stop_words")).endswith(FILE_SUFFIX):
        config["stop_words"] = Path(config["stop_words"]).name
    return config


_LEAD = ("lead", "lead_weight")


def whole_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest's configuration with the fields that `as_config` leaves out.

    Raises BadParameter for an unknown kind.
    """
    fields = _class_of(config.get("kind")).model_fields
    unused: dict[str, Scalar] = {"bigrams": False}
    if "lead" not in config:
        unused |= {"lead": 0, "lead_weight": LEAD_WEIGHT}
    return {**{name: unused[name] for name in unused.keys() & fields.keys()}, **config}


def check_complete(config: Mapping[str, Any], parameter_class: type[_FeatureParameters]) -> None:
    """Raise Corrupt unless a manifest's configuration has every parameter of its kind."""
    missing = parameter_class.model_fields.keys() - config.keys()
    if missing:
        raise Corrupt("manifest", f"features.{min(missing)}", "none")


def _class_of(kind: object) -> type[FeatureParameters]:
    parameter_class = PARAMETERS.get(kind) if isinstance(kind, str) else None
    if parameter_class is None:
        message = f"expected one of {', '.join(PARAMETERS)}, found {what_is(kind)}"
        raise BadParameter.from_faults([ParameterFault(f"{PREFIX}kind", message)])
    return parameter_class
