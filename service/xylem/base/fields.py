"""Fields: the columns that make the text of a row, each with a weight.

The text is made here alone, of files, frames and requests, for training and for answers.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

from xylem.base.errors import BadInstance, BadParameter

AUTO = "auto"  # the weight of a column whose weight is chosen on held-out rows

UNWEIGHTED = 0  # the number that stands for AUTO until the weight is chosen

FIELD_WEIGHT_MAX = 9  # the greatest weight of a column

# A column with its weight; a number that is none of its weights is refused, not taken for a name.
_WEIGHTED = re.compile(rf"(.+)=(-?\d{{1,9}}(?:\.\d*)?|{AUTO})", re.DOTALL)


class TextColumn(NamedTuple):
    """A column of text; each of its words counts `weight` times, from 1 to FIELD_WEIGHT_MAX.

    UNWEIGHTED: the weight is not chosen yet.
    """

    name: str
    weight: int = 1

    def __str__(self) -> str:
        """Return the column as `--text-column` takes it."""
        return (
            self.name
            if self.weight == 1 and not _WEIGHTED.fullmatch(self.name)
            else f"{self.name}={self.weight or AUTO}"
        )


class WeighableText(str):
    """A text of fields, one of which has no weight yet: self[start:end] is its cell."""

    __slots__ = ("end", "start")

    start: int
    end: int

    def weighted(self, weight: int) -> str:
        """Return the text in which that field has a weight."""
        repeated = f"\n{self[self.start : self.end]}" * (weight - 1)
        return f"{self[: self.end]}{repeated}{self[self.end :]}"


class TextFields(tuple[TextColumn, ...]):
    """The fields of a text, in their order.

    The text is their cells with line ends between; the cell of a field of weight w stands there w
    times. A cell without a value is empty.

    key    that of an object of fields, in requests and lines, and of their names in manifests
    n_max  the most fields
    """

    __slots__ = ()

    key: ClassVar[str] = "fields"
    n_max: ClassVar[int] = 64

    @classmethod
    def of_options(cls, options: Sequence[str]) -> Self:
        """Return the fields of texts NAME, NAME=WEIGHT or NAME=auto.

        Raises BadParameter, whose path is the field of a job.
        """
        if len(options) > cls.n_max:
            raise _refusal(f"text column: expected at most {cls.n_max}, found {len(options)}")
        fields = cls(map(_text_column, options))
        names = fields.names
        if len(set(names)) < len(names):
            raise _refusal(
                f"text column: expected distinct names, found {', '.join(map(repr, names))}"
            )
        if sum(column.weight == UNWEIGHTED for column in fields) > 1:
            raise _refusal(
                f"text column: expected the weight {AUTO} for one column at most, because each "
                "more takes four times as many trials, found "
                f"{', '.join(str(field) for field in fields if not field.weight)}"
            )
        return fields

    @property
    def names(self) -> list[str]:
        """Return the names of the fields."""
        return [field.name for field in self]

    @property
    def options(self) -> list[str]:
        """Return the fields as `of_options` takes them."""
        return list(map(str, self))

    @property
    def unweighted(self) -> TextColumn | None:
        """Return the field whose weight is not chosen yet; None if all have one."""
        return next((field for field in self if field.weight == UNWEIGHTED), None)

    def refuse_unweighted(self) -> None:
        """Raise BadParameter if the weight of a field is still to be chosen."""
        if self.unweighted is not None:
            raise _refusal(
                f"text column {self.unweighted.name!r}: expected a weight as a number, found "
                f"{AUTO}, which only a training can choose"
            )

    def with_weight(self, weight: int) -> Self:
        """Return the fields, with a weight for the one that has none yet."""
        return type(self)(field._replace(weight=field.weight or weight) for field in self)

    def join(self, cells: Iterable[Any]) -> str:
        """Return the text of a row, from a cell for each field.

        Raises BadInstance for a cell that is neither a text nor None.
        """
        parts: list[str] = []
        start = end = -1
        for (name, weight), cell in zip(self, cells, strict=True):
            if cell is not None and not isinstance(cell, str):
                from xylem.base.faults import what_is  # pydantic, which `--help` is spared

                raise BadInstance(
                    f"field {name[:40]!r}: expected a text, or null for none, found {what_is(cell)}"
                )
            if weight == UNWEIGHTED:
                start = sum(map(len, parts)) + len(parts)
                end = start + len(cell or "")
            parts += [cell or ""] * (weight or 1)
        if start < 0:
            return "\n".join(parts)
        text = WeighableText("\n".join(parts))
        text.start = start
        text.end = end
        return text

    def cells(self, row: Mapping[str, Any]) -> list[Any] | None:
        """Return the cells of a row of a file; None if it has none of the fields.

        They are keys of the row, or of the object `fields` in it; other keys are ignored.
        """
        fields = row.get(self.key)
        cells = fields if isinstance(fields, dict) else row
        return (
            [cells.get(field.name) for field in self]
            if any(field.name in cells for field in self)
            else None
        )

    def text(self, cells: Mapping[str, Any]) -> str:
        """Return the text of the fields of a request, some of which may be missing.

        Raises BadInstance for fields that a version does not have, and if there is none.
        """
        if not self:
            raise BadInstance(
                "expected a text, because this model was trained without fields, found fields"
            )
        if unknown_names := [name for name in cells if name not in self.names]:
            from xylem.base.faults import unknown  # pydantic, which `--help` is spared

            raise BadInstance(unknown(unknown_names[0], self.names, "field"))
        if not cells:
            raise BadInstance(f"expected one of the fields {', '.join(self.names)}, found none")
        return self.join([cells.get(name) for name in self.names])


def _text_column(text: str) -> TextColumn:
    if not text:
        raise _refusal("text column: expected a name, found an empty one")
    match = _WEIGHTED.fullmatch(text)
    if match is None:
        return TextColumn(text)
    if match[2] == AUTO:
        return TextColumn(match[1], UNWEIGHTED)
    weight = int(match[2]) if match[2].isdecimal() else 0
    if not 1 <= weight <= FIELD_WEIGHT_MAX:
        raise _refusal(
            f"text column {match[1]!r}: expected a weight from 1 to {FIELD_WEIGHT_MAX}, or {AUTO}, "
            f"found {match[2]}"
        )
    return TextColumn(match[1], weight)


def _refusal(message: str) -> BadParameter:
    return BadParameter(message).with_path("text_column")
