"""Options that go together: a NamedTuple of them, which a command takes as one parameter.

typer makes options of the parameters of a function. Of a command that is `grouped` it sees, in the place of
a parameter whose type is a NamedTuple, the fields of it, and the command gets them as one.

    @in_panel("Work")
    class Work(NamedTuple):
        threads: Annotated[int | None, typer.Option(help="Threads.")] = None
        seed: Annotated[int, typer.Option(help="Same seed, same model.")] = 0

    @grouped
    def train(data: Data, work: Work) -> None: ...  # has --data, --threads and --seed

`--help` shows the options of a group that is `in_panel` apart, after those that everybody needs.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator
from copy import copy
from functools import wraps
from typing import Annotated, Any, NamedTuple, TypeVar

Group = TypeVar("Group")


class _Panel(NamedTuple):
    name: str
    common: tuple[str, ...]


def in_panel(name: str, common: tuple[str, ...] = ()) -> Callable[[type[Group]], type[Group]]:
    """Give the options of a group a panel of `--help`, but for `common` and those that must be given."""

    def mark(group: type[Group]) -> type[Group]:
        setattr(group, "_panel", _Panel(name, common))  # noqa: B010 - a NamedTuple declares fields only
        return group

    return mark


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command as typer sees it. Raises ValueError where two options have one name."""
    signature = inspect.signature(command, eval_str=True)
    groups = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if hasattr(parameter.annotation, "_fields")
    }
    shown: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if name in groups:
            shown += _options_of(groups[name])
        else:
            shown.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(command)
    def run(**given: Any) -> None:
        made = {
            name: group(**{field: given.pop(field) for field in group._fields})
            for name, group in groups.items()
        }
        command(**given, **made)

    run.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    return run


def _options_of(group: Any) -> Iterator[inspect.Parameter]:
    """Yield the fields of a NamedTuple as parameters."""
    hints = typing.get_type_hints(group, include_extras=True)
    panel = getattr(group, "_panel", None)
    for name in group._fields:
        default, hint = group._field_defaults.get(name, inspect.Parameter.empty), hints[name]
        if panel and name in group._field_defaults and name not in panel.common:
            (option,) = hint.__metadata__
            option = copy(option)
            option.rich_help_panel = panel.name
            hint = Annotated[hint.__origin__, option]
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
