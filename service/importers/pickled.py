"""Pickles read as data: nothing is imported, called or built but dicts, lists, tuples, text and numbers.

A pickle is a program for a stack machine. This machine knows the operations that Python writes for protocols
4 and 5, and where Python's would import a name, make an instance or call a function, it notes the name, the
arguments and the state in a `Noted` object: a hostile pickle gives a strange tree of notes, no more. Every
operation takes bytes of the file and makes at most one object, so memory stays within a multiple of the
file's size, and bytes are views of the file. What is read may be a maze of shared items: never compare or
print it as a whole. Source: CPython, Lib/pickletools.py.
"""

import struct
from collections.abc import Callable
from typing import Any

from service.importers.files import ModelFile

NAME_MAX = 200
"""The longest name of a module or of something in it."""


class Noted:
    """A name that the pickle would import, or what it would make with one.

    name   module and name
    made   whether something would be made of it: then args are the arguments, and state what it is given
    """

    __slots__ = ("args", "made", "name", "state")

    def __init__(self, name: str, made: bool = False, args: object = ()) -> None:
        self.name = name
        self.made = made
        self.args = args
        self.state: object = None

    def __repr__(self) -> str:
        return f"{'an instance of ' if self.made else ''}{self.name}"


def shown(item: object) -> str:
    """Return a number, text or note as a message shows it, the type of anything else."""
    return f"{item!r:.80}" if type(item) in (bool, float, str, Noted) else type(item).__name__


class _Mark:
    """Stands on the stack where a group of items begins."""


_MARK = _Mark()


def read_pickle(file: ModelFile) -> Any:
    """Return what a pickle of protocol 4 or 5 holds. Raises BadModel for any other bytes."""
    return _Machine(file).run()


class _Machine:
    """The stack, the memo and the place in the file."""

    def __init__(self, file: ModelFile) -> None:
        self._file = file
        self._data = memoryview(file.data)
        self._at = 0
        self._stack: list[Any] = []
        self._memo: list[Any] = []

    def run(self) -> Any:
        """Run the whole program."""
        start = self._take(2)
        known = len(start) == 2 and start[0] == 0x80 and start[1] in (4, 5)
        self._file.expect(known, "a pickle of protocol 4 or 5", f"{bytes(start)!r}")
        while (code := self._take(1)[0]) != _STOP:
            operation = _OPERATIONS.get(code)
            if operation is None:
                raise self._file.fault("operations that a model needs", f"operation {code:#x}{self._place()}")
            operation(self)
        self._file.expect(self._at == len(self._data), "the end", f"more{self._place()}")
        return self._pop()

    def _place(self) -> str:
        return f" at byte {self._at}"

    def _take(self, size: int) -> memoryview:
        """Return the next bytes, a view."""
        self._file.expect(size <= len(self._data) - self._at, f"{size} more bytes", f"the end{self._place()}")
        self._at += size
        return self._data[self._at - size : self._at]

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _pop(self) -> Any:
        item = self._stack.pop() if self._stack else _MARK
        self._file.expect(item is not _MARK, "an item on the stack", f"none{self._place()}")
        return item

    def _pop_group(self) -> list[Any]:
        """Return the items down to the last mark, and take the mark away."""
        items: list[Any] = []
        while self._stack and self._stack[-1] is not _MARK:
            items.append(self._stack.pop())
        self._file.expect(bool(self._stack), "a mark on the stack", f"none{self._place()}")
        self._stack.pop()
        return items[::-1]

    def _top(self, kind: type) -> Any:
        """Return the item on top, which stays there."""
        item = self._stack[-1] if self._stack else None
        self._file.expect(type(item) is kind, f"a {kind.__name__}", f"{type(item).__name__}{self._place()}")
        return item

    def push(self, item: Any) -> None:
        """Put an item on the stack."""
        self._stack.append(item)

    def mark(self) -> None:
        """Begin a group."""
        self._stack.append(_MARK)

    def skip_frame(self) -> None:
        """Go over the length of a frame, which says nothing that is needed."""
        self._take(8)

    def push_number(self, form: str) -> None:
        """Push a number of a struct format."""
        self.push(self._number(form))

    def push_long(self) -> None:
        """Push an integer of up to 255 bytes."""
        self.push(int.from_bytes(self._take(self._number("<B")), "little", signed=True))

    def push_bytes(self, form: str) -> None:
        """Push a view of as many bytes as a number of this format says."""
        self.push(self._take(self._number(form)))

    def push_text(self, form: str) -> None:
        """Push text of as many bytes as a number of this format says."""
        try:
            self.push(str(self._take(self._number(form)), "utf-8", "surrogatepass"))
        except UnicodeDecodeError as error:
            raise self._file.fault("text in UTF-8", error) from error

    def push_tuple(self, size: int) -> None:
        """Push a tuple of the last items."""
        items = [self._pop() for _ in range(size)]
        self.push(tuple(items[::-1]))

    def push_group(self) -> None:
        """Push a tuple of the last group."""
        self.push(tuple(self._pop_group()))

    def memoise(self) -> None:
        """Keep the item on top in the memo."""
        self._file.expect(bool(self._stack), "an item on the stack", f"none{self._place()}")
        self._memo.append(self._stack[-1])

    def recall(self, form: str) -> None:
        """Push an item of the memo."""
        place = self._number(form)
        self._file.expect(place < len(self._memo), "an item of the memo", f"number {place}{self._place()}")
        self.push(self._memo[place])

    def append(self) -> None:
        """Append an item to a list."""
        item = self._pop()
        self._top(list).append(item)

    def extend(self) -> None:
        """Append the last group to a list."""
        items = self._pop_group()
        self._top(list).extend(items)

    def set_item(self) -> None:
        """Put a value into a dict."""
        value, key = self._pop(), self._pop()
        self._update(self._top(dict), [key, value])

    def set_items(self) -> None:
        """Put a group of keys and values into a dict."""
        items = self._pop_group()
        self._update(self._top(dict), items)

    def _update(self, found: dict[Any, Any], items: list[Any]) -> None:
        for key, value in zip(items[::2], items[1::2], strict=False):
            self._file.expect(type(key) in (str, int), "keys of text or integers", type(key).__name__)
            found[key] = value

    def note_name(self) -> None:
        """Note a name that would be imported."""
        name, module = self._pop(), self._pop()
        is_text = type(name) is str and type(module) is str and len(name) + len(module) <= NAME_MAX
        self._file.expect(is_text, "a name to import", f"{type(name).__name__}{self._place()}")
        self.push(Noted(f"{module}.{name}"))

    def note_made(self) -> None:
        """Note what would be made by a call."""
        args, name = self._pop(), self._pop()
        is_name = type(name) is Noted and not name.made
        self._file.expect(is_name, "a name to call", f"{type(name).__name__}{self._place()}")
        self.push(Noted(name.name, True, args))

    def note_state(self) -> None:
        """Note the state that something made would be given."""
        state = self._pop()
        self._top(Noted).state = state


_STOP = 0x2E

_OPERATIONS: dict[int, Callable[[_Machine], None]] = {
    0x95: _Machine.skip_frame,
    0x28: _Machine.mark,
    0x94: _Machine.memoise,
    0x68: lambda machine: machine.recall("<B"),
    0x6A: lambda machine: machine.recall("<I"),
    0x4E: lambda machine: machine.push(None),
    0x88: lambda machine: machine.push(True),
    0x89: lambda machine: machine.push(False),
    0x4B: lambda machine: machine.push_number("<B"),
    0x4D: lambda machine: machine.push_number("<H"),
    0x4A: lambda machine: machine.push_number("<i"),
    0x47: lambda machine: machine.push_number(">d"),
    0x8A: _Machine.push_long,
    0x43: lambda machine: machine.push_bytes("<B"),
    0x42: lambda machine: machine.push_bytes("<I"),
    0x8E: lambda machine: machine.push_bytes("<Q"),
    0x96: lambda machine: machine.push_bytes("<Q"),
    0x8C: lambda machine: machine.push_text("<B"),
    0x58: lambda machine: machine.push_text("<I"),
    0x8D: lambda machine: machine.push_text("<Q"),
    0x29: lambda machine: machine.push(()),
    0x85: lambda machine: machine.push_tuple(1),
    0x86: lambda machine: machine.push_tuple(2),
    0x87: lambda machine: machine.push_tuple(3),
    0x74: _Machine.push_group,
    0x5D: lambda machine: machine.push([]),
    0x61: _Machine.append,
    0x65: _Machine.extend,
    0x7D: lambda machine: machine.push({}),
    0x73: _Machine.set_item,
    0x75: _Machine.set_items,
    0x93: _Machine.note_name,
    0x52: _Machine.note_made,
    0x81: _Machine.note_made,
    0x62: _Machine.note_state,
}
"""By its byte, what each operation does."""
