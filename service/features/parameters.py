"""What can be chosen about features: one frozen class a kind, checked when it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from service.errors import BadParameter

Norm = Literal["l2", "l1", "none"]
"""How a row is scaled at the end: to length 1, to a sum of absolute values of 1, or not."""

NGRAM_MAX = 8
N_FEATURES_MAX = 1 << 28
HASHED_FEATURES_MIN = 1 << 8
HASHED_FEATURES_MAX = 1 << 24

Scalar: TypeAlias = bool | int | float | str | None
Check: TypeAlias = Callable[[Any], bool]


def _whole(low: int, high: int) -> tuple[str, Check]:
    return f"an integer from {low} to {high}", lambda value: type(value) is int and low <= value <= high


def _is_share(value: Any) -> bool:
    return (type(value) is int and value >= 1) or (type(value) is float and 0.0 <= value <= 1.0)


def _is_power(value: Any) -> bool:
    return (
        type(value) is int
        and HASHED_FEATURES_MIN <= value <= HASHED_FEATURES_MAX
        and value & (value - 1) == 0
    )


_FLAG: tuple[str, Check] = ("true or false", lambda value: type(value) is bool)
_SHARE: tuple[str, Check] = ("a number of rows from 1, or a share of them from 0.0 to 1.0", _is_share)

_RULES: dict[str, tuple[str, Check]] = {
    "lowercase": _FLAG,
    "ngram_min": _whole(1, NGRAM_MAX),
    "ngram_max": _whole(1, NGRAM_MAX),
    "min_df": _SHARE,
    "max_df": _SHARE,
    "max_features": (
        f"null or an integer from 1 to {N_FEATURES_MAX}",
        lambda value: value is None or (type(value) is int and 1 <= value <= N_FEATURES_MAX),
    ),
    "sublinear_tf": _FLAG,
    "use_idf": _FLAG,
    "smooth_idf": _FLAG,
    "norm": (f"one of {', '.join(get_args(Norm))}", lambda value: value in get_args(Norm)),
    "n_features": (
        f"a power of two from {HASHED_FEATURES_MIN} to {HASHED_FEATURES_MAX}",
        _is_power,
    ),
    "signed": _FLAG,
}
"""What each parameter takes, in words and as a check."""


class _Checked:
    """Checks every field of a parameter class against _RULES."""

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            expected, holds = _RULES[field.name]
            if not holds(value):
                raise BadParameter(f"features.{field.name}: expected {expected}, found {value!r}")
        low, high = getattr(self, "ngram_min", 1), getattr(self, "ngram_max", 1)
        if low > high:
            raise BadParameter(f"features.ngram_max: expected at least ngram_min, {low}, found {high}")


@dataclass(frozen=True)
class TfidfParameters(_Checked):
    """Words and word n-grams of a text, counted and weighted as scikit-learn's TfidfVectorizer does.

    lowercase     lower-case the text first
    ngram_min, ngram_max  lengths of n-grams in words
    min_df, max_df  an n-gram is a feature when it occurs in so many texts: integers count, floats are shares
    max_features  keep only so many n-grams, the most frequent ones
    sublinear_tf  1 + ln(count) in place of the count
    use_idf       weight by the inverse document frequency
    smooth_idf    as if one more text had every n-gram
    norm          see Norm
    """

    kind: ClassVar[str] = "tfidf"

    lowercase: bool = True
    ngram_min: int = 1
    ngram_max: int = 1
    min_df: int | float = 1
    max_df: int | float = 1.0
    max_features: int | None = None
    sublinear_tf: bool = True
    use_idf: bool = True
    smooth_idf: bool = True
    norm: Norm = "l2"


@dataclass(frozen=True)
class HashingParameters(_Checked):
    """Words and word n-grams of a text, counted under the hash of their bytes: no vocabulary, no limit to it.

    For named features, the values under the hash of their names; then the n-grams' parameters mean nothing.

    n_features    how many features, a power of two
    signed        count up or down by another bit of the hash, so that collisions cancel out on average
    lowercase, ngram_min, ngram_max, norm  as in TfidfParameters
    """

    kind: ClassVar[str] = "hashing"

    n_features: int = 1 << 20
    signed: bool = True
    lowercase: bool = True
    ngram_min: int = 1
    ngram_max: int = 1
    norm: Norm = "l2"


@dataclass(frozen=True)
class NamedParameters(_Checked):
    """Values by feature name; the names that occur in training are the features."""

    kind: ClassVar[str] = "named"

    norm: Norm = "l2"


@dataclass(frozen=True)
class RawParameters(_Checked):
    """Values by feature id."""

    kind: ClassVar[str] = "raw"

    norm: Norm = "l2"


FeatureParameters: TypeAlias = TfidfParameters | HashingParameters | NamedParameters | RawParameters

PARAMETERS: dict[str, type[FeatureParameters]] = {
    cls.kind: cls for cls in (TfidfParameters, HashingParameters, NamedParameters, RawParameters)
}
"""The parameter class of each kind of features."""


def parse_features(default_kind: str, items: Mapping[str, str]) -> FeatureParameters:
    """Return the parameters that `items` say, of kind items["kind"] or else of `default_kind`.

    Values are as on a command line: `true`, `2`, `0.5`, `null`, `l2`. Raises BadParameter for a key or kind
    that is unknown, a value of another type or out of its range.
    """
    values = {key: _scalar(text) for key, text in items.items()}
    return parameters_of({"kind": default_kind, **values})


def parameters_of(config: Mapping[str, Any]) -> FeatureParameters:
    """Return the parameters in a configuration as `as_config` makes it; keys may be missing, never unknown.

    Raises BadParameter.
    """
    given = dict(config)
    kind = given.pop("kind", None)
    parameter_class = PARAMETERS.get(kind) if isinstance(kind, str) else None
    if parameter_class is None:
        raise BadParameter(f"features.kind: expected one of {', '.join(PARAMETERS)}, found {kind!r}")
    known = [field.name for field in fields(parameter_class)]
    for key in given:
        if key not in known:
            raise BadParameter(f"features of kind {kind}: expected one of {', '.join(known)}, found {key!r}")
    return parameter_class(**given)


def as_config(parameters: FeatureParameters) -> dict[str, Scalar]:
    """Return the parameters as a manifest keeps them: the kind and every field."""
    return {"kind": parameters.kind, **asdict(parameters)}


def _scalar(text: str) -> Scalar:
    """Return the value that a word of a command line stands for."""
    words: dict[str, Scalar] = {"true": True, "false": False, "null": None}
    if text in words:
        return words[text]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
