"""Names and keys chosen to collide cost no more than others, or are
refused; no result depends on a seed.

What a search reads at most is counted, never timed: the longest run of slots that are used.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import Command
from tests.helpers.chosen_names import chosen_keys, chosen_names, fnv_hashes, longest_run

from xylem.engine.features.char_ngrams import short_names
from xylem.engine.features.ngram_counts import Vocabulary
from xylem.trainers.lomtree.tables import TABLE, contents, insert, make_pool
from xylem.trainers.plt.fobos import Shard, Topology, add_pairs
from xylem.vocabulary.text_words import empty_slots, slot_of
from xylem_store.errors import BadNames, Corrupt
from xylem_store.hashes import new_seed
from xylem_store.names import (
    PROBES_MAX,
    NameTable,
    build_names,
    check_names,
    find_all,
    names_in,
)

N = 4_000
RUN_MAX = PROBES_MAX


@pytest.fixture(scope="module")
def names() -> list[str]:
    return chosen_names(N)


@pytest.fixture(scope="module")
def unbounded(names: list[str]) -> NameTable:
    """The table of these names, as it was made before there was a bound."""
    utf8 = np.frombuffer("".join(names).encode(), np.uint8)
    offsets = 9 * np.arange(len(names) + 1, dtype=np.int64)
    slots = np.full(len(names) + len(names) // 2 + 1, -1, np.int32)
    starts = (fnv_hashes(utf8.reshape(-1, 9)) >> np.uint64(32)) * np.uint64(
        len(slots)
    ) >> np.uint64(32)
    for i, start in enumerate(starts.tolist()):
        slot = start
        while slots[slot] >= 0:
            slot = (slot + 1) % len(slots)
        slots[slot] = i
    return NameTable(offsets, utf8, slots)


def test_the_names_are_well_chosen(unbounded: NameTable) -> None:
    assert longest_run(unbounded.slots >= 0) > N // 2


def test_a_table_to_be_stored_refuses_them(names: list[str]) -> None:
    with pytest.raises(
        BadNames, match=r"expected names that share few places of a hash table, found one"
    ):
        build_names(names)


def test_a_stored_table_that_has_them_is_corrupt(unbounded: NameTable) -> None:
    with pytest.raises(BadNames, match="share few places"):
        check_names(*unbounded)
    with pytest.raises(Corrupt, match=r"labels.utf8.npy: .*share few places"):
        names_in({f"labels/{name}": array for name, array in unbounded._asdict().items()}, "labels")


def test_a_search_ends_in_a_table_without_an_empty_slot() -> None:
    table = build_names([f"name {i}" for i in range(PROBES_MAX)])
    full = table._replace(slots=np.arange(PROBES_MAX, dtype=np.int32))
    full.slots.flags.writeable = False
    assert find_all(full, ["none"]).tolist() == [-1]


@pytest.mark.parametrize("n", [10, 1_000, 300_000])
def test_other_names_are_far_from_the_bound(n: int) -> None:
    for words in (
        (f"label {i}" for i in range(n)),
        (str(i) for i in range(n)),
        (f"{i:x}é" for i in range(n)),
    ):
        assert longest_run(build_names(words).slots >= 0) < PROBES_MAX // 2


def test_a_vocabulary_that_grows(names: list[str]) -> None:
    vocabulary = Vocabulary()
    for begin in range(0, len(names), 1_000):
        part = names[begin : begin + 1_000]
        ends = 9 * np.arange(len(part) + 1, dtype=np.int64)
        ids = vocabulary.add(np.frombuffer("".join(part).encode(), np.uint8), ends[:-1], ends[1:])
        assert ids.tolist() == list(range(begin, begin + len(part)))  # by first appearance
    assert vocabulary.names(np.arange(vocabulary.n)) == names
    assert longest_run(vocabulary._slots >= 0) < RUN_MAX


@pytest.mark.parametrize(("length", "by_bytes"), [(8, True), (9, False), (12, False)])
def test_the_table_of_short_names(length: int, by_bytes: bool) -> None:
    words = chosen_names(N, length, by_bytes=by_bytes)
    ends = np.concatenate([[0], np.cumsum([len(word) for word in words])])
    # as from a version: `short_names` is given what was checked, which is not built anew here
    unchecked = NameTable(
        ends, np.frombuffer("".join(words).encode(), np.uint8), np.empty(0, np.int32)
    )
    table = short_names(unchecked, new_seed())
    assert longest_run(table[:, 0] != 0) < RUN_MAX


def test_the_words_of_a_text() -> None:
    keys = np.array(chosen_keys(N, 0x9E3779B1, 31, 8, 8192), np.int32)
    slots = empty_slots(N, new_seed())
    for i, key in enumerate(keys.tolist()):
        slot = slot_of(slots, keys, key)
        assert slots[slot] < 0
        slots[slot] = i
    assert longest_run(slots[:-1] >= 0) < RUN_MAX
    assert [slots[slot_of(slots, keys, key)] for key in keys.tolist()] == list(range(N))


def test_the_tables_of_an_online_tree() -> None:
    keys = chosen_keys(3_000, 0x9E3779B1, 32, 19, 8192)
    pool = make_pool(np.empty(1, TABLE), 1 << 16, np.float32)
    for key in keys:
        assert insert(pool, 0, key) >= 0
    start, size = int(pool.start[0]), 1 << int(pool.bits[0])
    assert longest_run(pool.key[start : start + size] >= 0) < RUN_MAX
    assert pool.key[contents(pool, np.array([0]))[1]].tolist() == sorted(keys)


def shard_of(n_slots: int) -> tuple[Topology, Shard]:
    tree = Topology(np.array([1, 2, 2], np.int32), *(np.zeros(2, np.int32) for _ in range(3)))
    shard = Shard(
        number=0,
        seed=new_seed(),
        keys=np.zeros(n_slots, np.uint64),
        place=np.zeros(n_slots, np.int64),
        pool=np.zeros(1 << 16, np.float32),
        bias=np.zeros(2, np.float32),
        steps=np.zeros(2, np.int64),
        used=np.zeros(3, np.int64),
    )
    return tree, shard


def test_the_weights_of_a_descent() -> None:
    keys = chosen_keys(N, 0x9E3779B97F4A7C15, 64, 20, 8192)
    tree, shard = shard_of(8192)
    add_pairs(tree, shard, np.array(keys, np.uint64), 1 << 20)
    assert shard.used.tolist() == [N, N, 0]
    assert longest_run(shard.keys != 0) < RUN_MAX
    places = dict(zip(shard.keys.tolist(), shard.place.tolist(), strict=True))
    assert [places[key] for key in keys] == list(range(N))  # by first appearance


def test_a_descent_without_room_leaves_a_quarter_of_slots_empty() -> None:
    tree, shard = shard_of(1024)
    add_pairs(tree, shard, np.arange(1, 2001, dtype=np.uint64), 1 << 20)
    assert shard.used.tolist() == [768, 768, 2000 - 768]


def lines(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def labels(folder: Path, names: list[str]) -> list[object]:
    rows: list[dict[str, object]] = [
        {"text": "some words", "labels": names[i::4]} for i in range(4)
    ]
    return ["--data", lines(folder / "rows.jsonl", rows)]


def label_names(folder: Path, names: list[str]) -> list[object]:
    (folder / "names.txt").write_text("\n".join(names) + "\n")
    (folder / "rows.svm").write_text("".join(f"{i} {i}:1\n" for i in range(8)))
    return ["--data", folder / "rows.svm", "--label-names", folder / "names.txt"]


def words_of(*features: str) -> Callable[[Path, list[str]], list[object]]:
    def options(folder: Path, names: list[str]) -> list[object]:
        rows: list[dict[str, object]] = [{"text": " ".join(names), "labels": ["a"]}] * 2
        rows.append({"text": "other words", "labels": ["b"]})
        return ["--data", lines(folder / "rows.jsonl", rows), *features]

    return options


def n_grams(folder: Path, names: list[str]) -> list[object]:
    of_eight = (
        "-p",
        "features.kind=chars",
        "-p",
        "features.char_min=8",
        "-p",
        "features.char_max=8",
    )
    return words_of(*of_eight)(folder, chosen_names(len(names), 8))


def features_by_name(folder: Path, names: list[str]) -> list[object]:
    rows: list[dict[str, object]] = [
        {"features": dict.fromkeys(names, 1.0), "labels": [label]} for label in "ab"
    ]
    return ["--data", lines(folder / "rows.jsonl", rows)]


DOORS = {
    "labels": labels,
    "label names": label_names,
    "words": words_of("-p", "features.kind=tfidf"),
    "n-grams": n_grams,
    "words and n-grams": words_of("-p", "features.kind=words+chars"),
    "features": features_by_name,
}


@pytest.mark.parametrize("door", DOORS)
def test_a_training_refuses_them(
    door: str, names: list[str], tmp_path: Path, command: Command
) -> None:
    status, out, err = command("train", "plt", "--model", "m", *DOORS[door](tmp_path, names))
    assert (status, out) == (2, "")
    assert "expected names that share few places of a hash table, found one" in err
    assert len(err) < 400
