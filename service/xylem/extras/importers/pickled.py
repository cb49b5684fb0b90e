"""Read pickles as data: nothing is imported or called, and no object of a class is made.

A pickle is a program for a stack machine. The machine here knows the operations that Python writes
for protocols 4 and 5, and makes dicts, lists, tuples, text and numbers. Where Python's machine
would import a name, make an instance or call a function, this one puts the name, the arguments and
the state into a `Stub`: from a hostile pickle comes a strange tree of stubs, nothing worse. Each
operation takes bytes of the file and makes at most one object, so that the memory is bounded by a
multiple of the file's size. Items may share other items, and a tree of them may be exponentially
large when it is unfolded: never compare or print it as a whole.
"""

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from xylem.extras.importers.files import ModelFile

NAME_MAX = 200  # the most characters of a module's name and the name of an object in it, together


@dataclass(slots=True, eq=False)
class Stub:
    """A stand-in for a name that the pickle would import, or for an object that it would make.

    name     the module and the name
    is_call  whether the name would be called to make an object
    args     the arguments of that call
    state    the state that the object would be given
    """

    name: str
    is_call: bool = False
    args: object = ()
    state: object = None

    def __repr__(self) -> str:
        return f"{'an instance of ' if self.is_call else ''}{self.name}"


def describe(item: object) -> str:
    """Describe an item in a message: a number, text or stub itself, the type of anything else."""
    return f"{item!r:.80}" if type(item) in (bool, float, str, Stub) else type(item).__name__


_MARK = object()  # an item of the stack that marks where a group of items begins


def read_pickle(file: ModelFile) -> Any:
    """Return the object in a pickle of protocol 4 or 5. Raises BadModel for any other bytes."""
    try:
        return _Machine(file).run()
    except ValueError as error:  # by pickletools, for bytes that are no operation or cut off
        raise file.fault("a whole pickle", error) from error


class _Machine:
    """The machine that runs a pickle, with its stack and its memo. Methods raise BadModel."""

    def __init__(self, file: ModelFile) -> None:
        self._file = file
        self._offset = 0
        self.stack: list[Any] = []
        self._memo: list[Any] = []

    def run(self) -> Any:
        """Run the whole program; return the object that it makes.

        pickletools divides the program into operations and their arguments.
        """
        operations = pickletools.genops(self._file.data)
        first, protocol, _ = next(operations)
        self._file.expect(
            first.name == "PROTO" and protocol in (4, 5),
            "a pickle of protocol 4 or 5",
            f"{self._file.data[:2]!r}",
        )
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
        """Remove the last `size` items from the stack; return them."""
        return [self._pop() for _ in range(size)][::-1]

    def group(self) -> list[Any]:
        """Remove the items above the last mark, and the mark, from the stack; return the items."""
        items: list[Any] = []
        while self.stack and self.stack[-1] is not _MARK:
            items.append(self.stack.pop())
        self._file.expect(bool(self.stack), "a mark on the stack", f"none{self._place()}")
        self.stack.pop()
        return items[::-1]

    def _top(self, kind: type) -> Any:
        """Return the top item, which must be of a type, and leave it on the stack."""
        item = self.stack[-1] if self.stack else None
        self._file.expect(
            type(item) is kind, f"a {kind.__name__}", f"{type(item).__name__}{self._place()}"
        )
        return item

    def memoise(self) -> None:
        """Append the top item to the memo."""
        self._file.expect(bool(self.stack), "an item on the stack", f"none{self._place()}")
        self._memo.append(self.stack[-1])

    def recall(self, number: int) -> None:
        """Push an item of the memo onto the stack."""
        self._file.expect(
            number < len(self._memo), "an item of the memo", f"number {number}{self._place()}"
        )
        self.stack.append(self._memo[number])

    def extend(self, items: list[Any]) -> None:
        """Append items to the list on top of the stack."""
        self._top(list).extend(items)

    def update(self, items: list[Any]) -> None:
        """Put items, which are keys and values in turn, into the dict on top of the stack."""
        target = self._top(dict)
        for key, value in zip(items[::2], items[1::2], strict=False):
            self._file.expect(
                type(key) in (str, int), "keys of text or integers", type(key).__name__
            )
            target[key] = value

    def note_name(self) -> None:
        """Push a stub for a name that Python would import."""
        module, name = self.last(2)
        self._file.expect(
            type(name) is str and type(module) is str and len(name) + len(module) <= NAME_MAX,
            "a name to import",
            f"{type(name).__name__}{self._place()}",
        )
        self.stack.append(Stub(f"{module}.{name}"))

    def note_call(self) -> None:
        """Push a stub for an object that Python would make by a call."""
        name, args = self.last(2)
        self._file.expect(
            type(name) is Stub and not name.is_call,
            "a name to call",
            f"{type(name).__name__}{self._place()}",
        )
        self.stack.append(Stub(name.name, True, args))

    def note_state(self) -> None:
        """Store, in the stub on top of the stack, the state that Python would give the object."""
        self._top(Stub).state = self._pop()


# Operations that push their argument.
_ARGUMENTS = frozenset(
    (
        *("BININT", "BININT1", "BININT2", "BINFLOAT", "LONG1"),
        *("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
        *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    )
)

# The function of each other operation, by its name in pickletools.
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
