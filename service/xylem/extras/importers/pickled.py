"""Pickles read as data: nothing is imported, called or built but
dicts, lists, tuples, text and numbers.

A pickle is a program for a stack machine. This machine knows the operations that Python writes for
protocols 4 and 5, and where Python's would import a name, make an instance or call a function, it
notes the name, the arguments and the state in a `Stub` object: a hostile pickle gives a strange
tree of notes, no more. Every operation takes bytes of the file and makes at most one object, so
memory stays within a multiple of the file's size. What is read may be a maze of shared items: never
compare or print it as a whole.
"""

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from xylem.extras.importers.files import ModelFile

NAME_MAX = 200
"""The longest name of a module or of something in it."""


@dataclass(slots=True, eq=False)
class Stub:
    """A name that the pickle would import, or what it would make with one.

    name   module and name
    made   whether something would be made of it: then args are the arguments, and state what it is
           given
    """

    name: str
    is_call: bool = False
    args: object = ()
    state: object = None

    def __repr__(self) -> str:
        return f"{'an instance of ' if self.is_call else ''}{self.name}"


def describe(item: object) -> str:
    """Return a number, text or note as a message shows it, the type of anything else."""
    return f"{item!r:.80}" if type(item) in (bool, float, str, Stub) else type(item).__name__


_MARK = object()  # stands on the stack where a group of items begins


def read_pickle(file: ModelFile) -> Any:
    """Return what a pickle of protocol 4 or 5 holds. Raises BadModel for any other bytes."""
    try:
        return _Machine(file).run()
    except ValueError as error:  # of pickletools: bytes that are no operation, or cut off
        raise file.fault("a whole pickle", error) from error


class _Machine:
    """The stack and the memo."""

    def __init__(self, file: ModelFile) -> None:
        self._file = file
        self._offset = 0
        self.stack: list[Any] = []
        self._memo: list[Any] = []

    def run(self) -> Any:
        """Run the whole program, which pickletools divides into operations and their arguments."""
        operations = pickletools.genops(self._file.data)
        first, protocol, _ = next(operations)
        is_supported = first.name == "PROTO" and protocol in (4, 5)
        self._file.expect(is_supported, "a pickle of protocol 4 or 5", f"{self._file.data[:2]!r}")
        for operation, argument, place in operations:
            self._offset = place or 0
            if operation.name in _ARGUMENTS:
                self.stack.append(argument)
            elif operation.name in _OPERATIONS:
                _OPERATIONS[operation.name](self, argument)
            elif operation.name != "STOP":
                raise self._file.fault(
                    "operations that a model needs", f"{operation.name}{self._place()}"
                )
        self._file.expect(
            self._offset + 1 == len(self._file.data), "the end", f"more{self._place()}"
        )
        return self._pop()

    def _place(self) -> str:
        return f" at byte {self._offset}"

    def _pop(self) -> Any:
        item = self.stack.pop() if self.stack else _MARK
        self._file.expect(item is not _MARK, "an item on the stack", f"none{self._place()}")
        return item

    def last(self, size: int) -> list[Any]:
        """Return the last items, and take them away."""
        return [self._pop() for _ in range(size)][::-1]

    def group(self) -> list[Any]:
        """Return the items down to the last mark, and take them and the mark away."""
        items: list[Any] = []
        while self.stack and self.stack[-1] is not _MARK:
            items.append(self.stack.pop())
        self._file.expect(bool(self.stack), "a mark on the stack", f"none{self._place()}")
        self.stack.pop()
        return items[::-1]

    def _top(self, kind: type) -> Any:
        """Return the item on top, which stays there."""
        item = self.stack[-1] if self.stack else None
        self._file.expect(
            type(item) is kind, f"a {kind.__name__}", f"{type(item).__name__}{self._place()}"
        )
        return item

    def memoise(self) -> None:
        """Keep the item on top in the memo."""
        self._file.expect(bool(self.stack), "an item on the stack", f"none{self._place()}")
        self._memo.append(self.stack[-1])

    def recall(self, number: int) -> None:
        """Push an item of the memo."""
        self._file.expect(
            number < len(self._memo), "an item of the memo", f"number {number}{self._place()}"
        )
        self.stack.append(self._memo[number])

    def extend(self, items: list[Any]) -> None:
        """Append items to a list."""
        self._top(list).extend(items)

    def update(self, items: list[Any]) -> None:
        """Put keys and values, one after the other, into a dict."""
        target = self._top(dict)
        for key, value in zip(items[::2], items[1::2], strict=False):
            self._file.expect(
                type(key) in (str, int), "keys of text or integers", type(key).__name__
            )
            target[key] = value

    def note_name(self) -> None:
        """Note a name that would be imported."""
        module, name = self.last(2)
        is_text = type(name) is str and type(module) is str and len(name) + len(module) <= NAME_MAX
        self._file.expect(is_text, "a name to import", f"{type(name).__name__}{self._place()}")
        self.stack.append(Stub(f"{module}.{name}"))

    def note_call(self) -> None:
        """Note what would be made by a call."""
        name, args = self.last(2)
        is_name = type(name) is Stub and not name.is_call
        self._file.expect(is_name, "a name to call", f"{type(name).__name__}{self._place()}")
        self.stack.append(Stub(name.name, True, args))

    def note_state(self) -> None:
        """Note the state that something made would be given."""
        state = self._pop()
        self._top(Stub).state = state


_ARGUMENTS = frozenset(
    (
        *("BININT", "BININT1", "BININT2", "BINFLOAT", "LONG1"),
        *("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
        *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    )
)
"""Operations that push their argument."""

_OPERATIONS: dict[str, Callable[[_Machine, Any], None]] = {
    "FRAME": lambda machine, _: None,
    "MARK": lambda machine, _: machine.stack.append(_MARK),
    "MEMOIZE": lambda machine, _: machine.memoise(),
    "BINGET": _Machine.recall,
    "LONG_BINGET": _Machine.recall,
    "NONE": lambda machine, _: machine.stack.append(None),
    "NEWTRUE": lambda machine, _: machine.stack.append(True),
    "NEWFALSE": lambda machine, _: machine.stack.append(False),
    "EMPTY_TUPLE": lambda machine, _: machine.stack.append(()),
    "TUPLE1": lambda machine, _: machine.stack.append(tuple(machine.last(1))),
    "TUPLE2": lambda machine, _: machine.stack.append(tuple(machine.last(2))),
    "TUPLE3": lambda machine, _: machine.stack.append(tuple(machine.last(3))),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.group())),
    "EMPTY_LIST": lambda machine, _: machine.stack.append([]),
    "APPEND": lambda machine, _: machine.extend(machine.last(1)),
    "APPENDS": lambda machine, _: machine.extend(machine.group()),
    "EMPTY_DICT": lambda machine, _: machine.stack.append({}),
    "SETITEM": lambda machine, _: machine.update(machine.last(2)),
    "SETITEMS": lambda machine, _: machine.update(machine.group()),
    "STACK_GLOBAL": lambda machine, _: machine.note_name(),
    "REDUCE": lambda machine, _: machine.note_call(),
    "NEWOBJ": lambda machine, _: machine.note_call(),
    "BUILD": lambda machine, _: machine.note_state(),
}
"""By its name in pickletools, what each other operation does."""
