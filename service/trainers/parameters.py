"""Parameters of trainers: frozen dataclasses whose fields say their own type, range and meaning."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import Field, asdict, dataclass, field, fields
from typing import Any, NamedTuple, Self

from service.errors import BadParameter

Scalar = bool | int | float | str


class Rule(NamedTuple):
    """What a parameter takes.

    expected  the type and range in words, for messages and help
    about     what it does, for help
    parse     from the text of a command line; raises ValueError
    holds     whether a value is of the type and in the range
    """

    expected: str
    about: str
    parse: Callable[[str], Scalar]
    holds: Callable[[Any], bool]


def whole(default: int, low: int, high: int, about: str) -> Any:
    """Return the field of an integer from low to high."""

    def holds(value: Any) -> bool:
        return type(value) is int and low <= value <= high

    return _field(default, Rule(f"an integer from {low} to {high}", about, int, holds))


def real(default: float, low: float, high: float, about: str) -> Any:
    """Return the field of a finite number from low to high."""

    def holds(value: Any) -> bool:
        return type(value) in (int, float) and math.isfinite(value) and low <= value <= high

    return _field(default, Rule(f"a number from {low:g} to {high:g}", about, float, holds))


def choice(default: str, options: tuple[str, ...], about: str) -> Any:
    """Return the field of one of several words."""
    return _field(default, Rule(f"one of {', '.join(options)}", about, str, lambda value: value in options))


def _field(default: Scalar, rule: Rule) -> Any:
    return field(default=default, metadata={"rule": rule})


def rule_of(parameter: Field[Any]) -> Rule:
    """Return the rule of a field made by `whole`, `real` or `choice`."""
    rule: Rule = parameter.metadata["rule"]
    return rule


@dataclass(frozen=True)
class Parameters:
    """The base of every trainer's parameters; checked when made."""

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Raise BadParameter when a value is of the wrong type or out of its range."""
        for parameter in fields(self):
            rule, value = rule_of(parameter), getattr(self, parameter.name)
            if not rule.holds(value):
                raise BadParameter(f"{parameter.name}: expected {rule.expected}, found {value!r}")

    @classmethod
    def parse(cls, items: Iterable[str]) -> Self:
        """Return the parameters that `key=value` items say, the others at their defaults.

        Raises BadParameter for an item without `=`, a key that is unknown or given twice, a value of another
        type or out of its range.
        """
        rules = {parameter.name: rule_of(parameter) for parameter in fields(cls)}
        values: dict[str, Scalar] = {}
        for item in items:
            key, equals, text = item.partition("=")
            if not equals:
                raise BadParameter(f"expected key=value, found {item!r}")
            if key not in rules:
                raise BadParameter(f"expected a parameter of {', '.join(rules)}; found {key!r}")
            if key in values:
                raise BadParameter(f"{key}: expected once, found twice")
            try:
                values[key] = rules[key].parse(text)
            except ValueError:
                raise BadParameter(f"{key}: expected {rules[key].expected}, found {text!r}") from None
        return cls(**values)

    def as_dict(self) -> dict[str, Scalar]:
        """Return the parameters as a manifest keeps them."""
        return asdict(self)
