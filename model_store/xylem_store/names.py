"""Names of labels or features as three arrays that can be mapped: ids to names and names to ids.

A million names are never a list of strings: they are bytes, offsets, and a hash table of ids. The
id of a name is its position in the input.
"""

import weakref
from array import array
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xylem_store.arrays import file_name, offset_fault, take
from xylem_store.compiled.decorators import kernel, nonallocating_inlined
from xylem_store.compiled.handles import I32, I64, U8, Bools, read_only
from xylem_store.errors import BadNames, Corrupt
from xylem_store.hashes import hash_bytes, slot_next, slot_start
from xylem_store.utf8 import NO_CODE, code_of

NAME_BYTES_MAX = 4096  # the longest name, in bytes of UTF-8

N_NAMES_MAX = (1 << 31) - 1  # the most names of a table: ids are int32

# The most slots that are read to find a name.
#
# A stored table has no seed, since it is the same on every machine. So names can be chosen that all
# begin at one slot; without a bound each of them would be compared with all before it. Names that
# nobody chose never reach the bound: of tables of 2^31 names, the largest, fewer than one in a
# million has a run of 512 slots without an empty one.
PROBES_MAX = 512

_32 = np.uint64(32)
_NO_OFFSETS = read_only(np.empty(0, np.int64))

# The arrays of the tables that `names_in` has checked, by the id of the last one, while it lives.
#
# An opening reads a table several times; to check 20,000 names takes 2.5 ms, a tenth of it.
_checked: dict[int, list[weakref.ref[NDArray[Any]]]] = {}

_FAULTS = {
    1: "expected a name of at least one byte, found an empty name",
    2: f"expected at most {NAME_BYTES_MAX} bytes, found a longer name",
    3: "expected no control characters, found one",
    4: "expected UTF-8, found other bytes",
    5: "expected distinct names, found one that occurs twice",
    6: f"expected names that share few places of a hash table, found one behind {PROBES_MAX} "
    "others",
}


class NameTable(NamedTuple):
    """n distinct names; id i is name i.

    The arrays are read-only, so that each kernel is compiled once, for this one kind of array.

    offsets  int64[n + 1]           ascending from 0; name i is utf8[offsets[i] : offsets[i + 1]]
    utf8     uint8[offsets[n]]      1 to NAME_BYTES_MAX bytes a name, no control characters
    slots    int32[n + n // 2 + 1]  ids, -1 in empty slots, inserted by ascending id; a name is
             looked up from `slot_start` of the upper half of its `hash_bytes` to the first empty
             slot, in at most PROBES_MAX slots
    """

    offsets: I64
    utf8: U8
    slots: I32

    @property
    def n_names(self) -> int:
        """Return the number of names."""
        return len(self.offsets) - 1


@nonallocating_inlined
def _same(a: U8, a_start: int, b: U8, b_start: int, length: int) -> bool:
    i = 0
    while i < length and a[a_start + i] == b[b_start + i]:
        i += 1
    return i == length


@nonallocating_inlined
def probe(
    offsets: I64,
    utf8: U8,
    slots: I32,
    query: U8,
    start: int,
    end: int,
    h: np.uint64,
    probes_max: int,
) -> np.int64:
    """Return the slot that holds the name query[start:end], or the empty slot where it belongs.

    Return -1 if neither is among the first `probes_max` slots.

    h  the hash of the name
    """
    n_slots = len(slots)
    slot = slot_start(h >> _32, n_slots)
    for _ in range(probes_max):
        i = slots[slot]
        if i < 0:
            return slot
        length = offsets[i + 1] - offsets[i]
        if length == end - start and _same(utf8, offsets[i], query, start, length):
            return slot
        slot = slot_next(slot, n_slots)
    return np.int64(-1)


@nonallocating_inlined
def id_by_hash(
    offsets: I64, utf8: U8, slots: I32, query: U8, start: int, end: int, h: np.uint64
) -> np.int64:
    """Return the id of the name query[start:end] with the hash h, -1 if it is not in the table."""
    slot = probe(offsets, utf8, slots, query, start, end, h, PROBES_MAX)
    return np.int64(slots[slot]) if slot >= 0 else slot


@nonallocating_inlined
def id_of(offsets: I64, utf8: U8, slots: I32, query: U8, start: int, end: int) -> np.int64:
    """Return the id of the name query[start:end], -1 if it is not in the table."""
    return id_by_hash(offsets, utf8, slots, query, start, end, hash_bytes(query, start, end))


@kernel
def _find(offsets: I64, utf8: U8, slots: I32, query: U8, query_offsets: I64, ids_out: I32) -> None:
    """Write the ids of names, -1 for unknown ones.

    query_offsets  the names' offsets in `query`; if empty, names are separated by NUL
    """
    end = -1
    for q in range(len(ids_out)):
        if len(query_offsets):
            start = query_offsets[q]
            end = query_offsets[q + 1]
        else:
            start = end = end + 1
            while end < len(query) and query[end] != 0:
                end += 1
        ids_out[q] = id_of(offsets, utf8, slots, query, start, end)


@nonallocating_inlined
def _name_fault(utf8: U8, start: int, end: int) -> int:
    """Return the number in _FAULTS of the fault of the name utf8[start:end], 0 for none."""
    if start == end:
        return 1
    if end - start > NAME_BYTES_MAX:
        return 2
    i = start
    while i < end:
        i, code = code_of(utf8, i)
        if code == NO_CODE or i > end:
            return 4
        if code < 0x20 or 0x7F <= code < 0xA0:
            return 3
    return 0


@kernel
def _fill(offsets: I64, utf8: U8, slots_out: I32) -> tuple[int, int]:
    """Put every name into the table; return (fault, name), fault 0 if there is none."""
    slots_out[:] = -1
    for i in range(len(offsets) - 1):
        fault = _name_fault(utf8, offsets[i], offsets[i + 1])
        if fault != 0:
            return fault, i
        start = offsets[i]
        end = offsets[i + 1]
        slot = probe(
            offsets, utf8, slots_out, utf8, start, end, hash_bytes(utf8, start, end), PROBES_MAX
        )
        if slot < 0:
            return 6, i
        if slots_out[slot] >= 0:
            return 5, i
        slots_out[slot] = i
    return 0, 0


def _refuse(fault: int, i: int, offsets: I64, utf8: U8) -> BadNames:
    name = bytes(utf8[offsets[i] : min(int(offsets[i + 1]), int(offsets[i]) + 60)])
    return BadNames(f"{_FAULTS[fault]}: {name.decode(errors='backslashreplace')!r}", i)


def join_texts(texts: Iterable[str]) -> tuple[I64, U8]:
    """Return the offsets of n texts, int64[n + 1], and their bytes, one after the other.

    Raises BadNames.
    """
    utf8 = bytearray()
    offsets = array("q", [0])
    for i, text in enumerate(texts):
        if i == N_NAMES_MAX:
            raise BadNames(f"expected at most {N_NAMES_MAX} names, found more")
        if not isinstance(text, str):
            raise BadNames(f"expected a string, found {type(text).__name__}", i)
        try:
            utf8 += text.encode()
        except UnicodeEncodeError as error:
            raise BadNames(f"expected text, found a lone surrogate: {text[:60]!a}", i) from error
        offsets.append(len(utf8))
    return np.frombuffer(offsets, np.int64).copy(), np.frombuffer(utf8, np.uint8).copy()


def build_names(names: Iterable[str]) -> NameTable:
    """Return the table of `names`; the i-th one gets id i.

    Raises BadNames for a name that is not a string, is empty, longer than NAME_BYTES_MAX bytes,
    repeated, or holds a control character (so also a line end) or a lone surrogate, and for names
    chosen so that one would not be found in PROBES_MAX slots. Takes any number of names from an
    iterator in the memory of the table, doubled at most; about a second a million. Deterministic.
    """
    return _build(*join_texts(names))


def check_name(name: str) -> None:
    """Raise BadNames for a name that `build_names` refuses.

    Most names are ASCII, for which no table is built.
    """
    if not (name.isascii() and name.isprintable() and 0 < len(name) <= NAME_BYTES_MAX):
        build_names([name])


def _build(offsets: I64, utf8: U8) -> NameTable:
    n = len(offsets) - 1
    slots = np.empty(n + n // 2 + 1, np.int32)
    fault, i = _fill(read_only(offsets), read_only(utf8), slots)
    if fault:
        raise _refuse(fault, i, offsets, utf8)
    return NameTable(read_only(offsets), read_only(utf8), read_only(slots))


def check_names(offsets: I64, utf8: U8, slots: I32) -> NameTable:
    """Return the table of these arrays, which may hold any bytes, if it is valid.

    Raises BadNames if an invariant of NameTable does not hold. The hash table must be exactly the
    one that `build_names` makes: it is built again and compared, so no search can be long or go
    astray. No byte outside the arrays is read.
    """
    if not 1 <= len(offsets) <= N_NAMES_MAX + 1:
        raise BadNames(f"expected 1 to {N_NAMES_MAX + 1} offsets, found {len(offsets)}")
    if offset_fault(offsets, len(utf8)) >= 0:
        raise BadNames(
            f"expected offsets that ascend from 0 to the {len(utf8)} bytes, found others"
        )
    if not np.array_equal(_build(offsets, utf8).slots, slots):
        raise BadNames("expected the hash table of these names, found another")
    return NameTable(read_only(offsets), read_only(utf8), read_only(slots))


def names_in(arrays: Mapping[str, NDArray[Any]], group: str) -> NameTable:
    """Return the table of names in a group of arrays.

    Read-only arrays are checked once. Raises Corrupt if the table is missing or invalid.
    """
    kinds = {"offsets": "int64", "utf8": "uint8", "slots": "int32"}
    parts = [take(arrays, f"{group}/{part}", dtype, (None,)) for part, dtype in kinds.items()]
    sources = [arrays[f"{group}/{part}"] for part in kinds]
    key = id(sources[-1])
    checked_ids = [id(reference()) for reference in _checked.get(key, ())]
    if checked_ids == [id(source) for source in sources]:
        return NameTable(*parts)
    try:
        table = check_names(*parts)
    except BadNames as error:
        raise Corrupt(file_name(f"{group}/utf8"), "a table of names", str(error)) from error
    if not any(source.flags.writeable for source in sources):
        _checked[key] = [
            weakref.ref(source, lambda _: _checked.pop(key, None)) for source in sources
        ]
    return table


@kernel
def _text_fault(offsets: I64, utf8: U8) -> tuple[int, int]:
    """Return (fault, text) of the first text that is not empty and cannot be a name, or (0, 0)."""
    for i in range(len(offsets) - 1):
        if offsets[i] < offsets[i + 1]:
            fault = _name_fault(utf8, offsets[i], offsets[i + 1])
            if fault != 0:
                return fault, i
    return 0, 0


def check_texts(offsets: I64, utf8: U8) -> None:
    """Raise BadNames unless each of n texts is empty or could be a name.

    Text i is utf8[offsets[i] : offsets[i + 1]]. Offsets ascend from 0 to the number of bytes (the
    caller's duty). Texts may be repeated.
    """
    fault, i = _text_fault(read_only(offsets), read_only(utf8))
    if fault:
        raise _refuse(fault, i, offsets, utf8)


def name_of(table: NameTable, i: int) -> str:
    """Return the name of id i, 0 <= i < n. Raises IndexError for another id."""
    if not 0 <= i < table.n_names:
        raise IndexError(f"expected an id below {table.n_names}, found {i}")
    return table.utf8[table.offsets[i] : table.offsets[i + 1]].tobytes().decode()


def all_names(table: NameTable) -> list[str]:
    """Return every name, in the order of the ids."""
    data = table.utf8.tobytes()
    return [data[start:end].decode() for start, end in pairwise(table.offsets.tolist())]


def names_with(offsets: I64, utf8: U8, part: str) -> Bools:
    """Return whether each of n texts contains `part`: bool[n].

    Text i is utf8[offsets[i] : offsets[i + 1]]. Both are compared by `str.casefold`. All texts are
    UTF-8 (the caller's duty). 0.8 microseconds a text.
    """
    data = utf8.tobytes()
    folded_part = part.casefold()
    texts = (str(data[start:end], "utf-8") for start, end in pairwise(offsets.tolist()))
    return np.fromiter(
        (folded_part in text.casefold() for text in texts), np.bool_, len(offsets) - 1
    )


def find_names(table: NameTable, utf8: U8, offsets: I64) -> I32:
    """Return the ids, int32[m], of m names as bytes and offsets int64[m + 1]; -1 for unknown ones.

    Offsets ascend within the bytes (the caller's duty). About 0.1 microseconds a name.
    """
    ids = np.empty(len(offsets) - 1, np.int32)
    _find(table.offsets, table.utf8, table.slots, read_only(utf8), read_only(offsets), ids)
    return ids


def find_all(table: NameTable, names: Iterable[str]) -> I32:
    """Return the ids, int32[m], of m names, -1 for names that the table does not have."""
    names = list(names)
    joined = "\0".join(names)
    # A name has a NUL, or there are no names. NUL becomes DEL, which no name of a table has.
    if joined.count("\0") >= len(names):
        joined = "\0".join([name.replace("\0", "\x7f") for name in names])
    # No table has a surrogate, so a name with one is unknown, not an error.
    query = np.frombuffer(joined.encode(errors="surrogatepass"), np.uint8)
    ids = np.empty(len(names), np.int32)
    _find(table.offsets, table.utf8, table.slots, query, _NO_OFFSETS, ids)
    return ids


def find_name(table: NameTable, name: str) -> int:
    """Return the id of a name, -1 if the table does not have it.

    `find_all` takes a tenth of the time for each name.
    """
    return int(find_all(table, (name,))[0])
