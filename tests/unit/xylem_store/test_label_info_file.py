"""Tables of label info against dicts; files that were damaged, or
that are wrong with a right checksum.
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.helpers.faulty_fs import QuickFileSystem
from tests.helpers.small_models import small_draft

from xylem_store.errors import BadNames, Corrupt, ModelNotFound
from xylem_store.label_info import (
    HEAD_BYTES,
    LabelInfo,
    Subject,
    build_label_info,
    label_info_pieces,
    map_label_info,
)
from xylem_store.names import find_name
from xylem_store.store import Store

FS = QuickFileSystem()
DRAFT = small_draft(n_labels=3, n_features=40, n_trees=1)
SUBJECTS = [
    Subject(
        "http://x/dog", "12", {"fi": "koira", "en": "dog"}, ["http://x/animal", "http://x/unknown"]
    ),
    Subject("http://x/animal", None, {"fi": "eläin"}),
    Subject("http://x/bare", None, {}, ["http://x/animal", "http://x/dog", "http://x/animal"]),
]

TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=12
)


def bytes_of(info: LabelInfo) -> bytes:
    return b"".join(label_info_pieces(info))


def written(path: Path, info: LabelInfo) -> LabelInfo:
    path.unlink(missing_ok=True)  # another may be mapped
    path.write_bytes(bytes_of(info))
    return map_label_info(FS, path, "here")


def told(info: LabelInfo, subject: int) -> Subject:
    """What the table has of a subject."""
    names = {language: info.text(f"name:{language}", subject) for language in info.head.languages}
    has = {language: name for language, name in names.items() if name is not None}
    uri, *above = (info.text("uri", at) or "" for at in (subject, *info.above(subject)))
    return Subject(uri, info.text("notation", subject), has, above)


def test_a_table_says_what_was_put_in(tmp_path: Path) -> None:
    info = written(tmp_path / "f", build_label_info(SUBJECTS))
    assert [told(info, i) for i in range(3)] == [
        SUBJECTS[0]._replace(broader=["http://x/animal"]),
        SUBJECTS[1]._replace(broader=[]),
        SUBJECTS[2]._replace(broader=["http://x/dog", "http://x/animal"]),
    ]
    assert info.head.columns == ("uri", "notation", "name:fi", "name:en")
    assert (info.head.language, info.text("name:sv", 0)) == ("fi", None)
    assert not info.utf8.flags.writeable


def test_labels_are_looked_for_by_any_column(tmp_path: Path) -> None:
    info = written(tmp_path / "f", build_label_info(SUBJECTS, "name:en", "fi"))
    assert (info.head.n_keys, info.head.n_subjects, info.head.language) == (1, 3, "fi")
    assert told(info, find_name(info.keys, "dog")).uri == "http://x/dog"
    assert find_name(info.keys, "koira") == -1
    by_notation = build_label_info(list(reversed(SUBJECTS)), "notation")
    assert told(by_notation, find_name(by_notation.keys, "12")).uri == "http://x/dog"


@st.composite
def vocabularies(draw: st.DrawFn) -> list[Subject]:
    uris = draw(st.lists(TEXT, min_size=1, max_size=8, unique=True))
    names = st.dictionaries(st.sampled_from(["fi", "en", "zh-hans", "und"]), TEXT, max_size=4)
    above = st.lists(st.sampled_from([*uris, "elsewhere"]), max_size=3)
    return [Subject(uri, draw(st.none() | TEXT), draw(names), draw(above)) for uri in uris]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(vocabularies())
def test_any_table_is_read_as_it_was_given(tmp_path: Path, subjects: list[Subject]) -> None:
    info = written(tmp_path / "f", build_label_info(subjects))
    uris = [subject.uri for subject in subjects]
    for subject in subjects:
        found = told(info, find_name(info.keys, subject.uri))
        assert found[:3] == (subject.uri, subject.notation, dict(subject.names))
        assert sorted(found.broader) == sorted({uri for uri in subject.broader if uri in uris})
    assert find_name(info.keys, "nowhere, surely") == -1


@pytest.mark.parametrize(
    ("subjects", "by", "fault", "index"),
    [
        ([*SUBJECTS, SUBJECTS[1]], "uri", "occurs twice", 3),
        (
            [Subject("a", None, {"en": "x"}), Subject("b", None, {"en": "x"})],
            "name:en",
            "occurs twice",
            1,
        ),
        (
            [Subject("a", None, {"en": "x"}), Subject("b", None, {"en": "x\ny"})],
            "uri",
            "control",
            1,
        ),
        ([Subject("a", "x" * 5000, {})], "uri", "at most 4096 bytes", 0),
        ([Subject("a\ud800", None, {})], "uri", "surrogate", 0),
    ],
)
def test_bad_texts_name_their_subject(
    subjects: list[Subject], by: str, fault: str, index: int
) -> None:
    with pytest.raises(BadNames, match=fault) as refusal:
        build_label_info(subjects, by)
    assert refusal.value.index == index


@pytest.mark.parametrize(
    ("subjects", "options", "fault"),
    [
        ([], {}, "1 to"),
        (
            SUBJECTS,
            {"key_column": "name:sv"},
            "one of uri, notation, fi, en to look for labels by, found 'sv'",
        ),
        (SUBJECTS[1:], {"key_column": "notation"}, "found none"),
        (SUBJECTS, {"language": "sv"}, "expected one of the languages fi, en"),
        ([Subject("a", None, {f"x{i}": "n" for i in range(65)})], {}, "at most 64"),
    ],
)
def test_tables_that_cannot_be(
    subjects: list[Subject], options: dict[str, str], fault: str
) -> None:
    with pytest.raises(ValueError, match=fault):
        build_label_info(subjects, **options)


def refuse(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "damaged"
    path.write_bytes(data)
    with pytest.raises(Corrupt, match="here"):
        map_label_info(FS, path, "here")


def test_every_flipped_bit_and_every_cut_is_refused(tmp_path: Path) -> None:
    data = bytes_of(build_label_info(SUBJECTS))
    rng = np.random.default_rng(0)
    sealed = len(data[:HEAD_BYTES].rstrip(b"\n"))
    for place in [*rng.choice(sealed, 100).tolist(), *range(HEAD_BYTES, len(data), 3)]:
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(rng.integers(8))
        refuse(tmp_path, bytes(damaged))
    for cut in (0, 1, sealed, HEAD_BYTES - 1, HEAD_BYTES, len(data) - 1):
        refuse(tmp_path, data[:cut])
    refuse(tmp_path, data + b"\0")


def refuse_with_right_checksum(tmp_path: Path, info: LabelInfo) -> None:
    sha256 = hashlib.sha256(bytes_of(info)[HEAD_BYTES:]).hexdigest()
    refuse(tmp_path, bytes_of(info._replace(head=info.head._replace(sha256=sha256))))


@pytest.mark.parametrize(
    ("name", "index", "value"),
    [
        ("offsets", 1, -1),
        ("offsets", 1, 1 << 40),
        ("offsets", -1, 3),
        ("broader_ptr", 1, 99),
        ("broader_ptr", 0, 1),
        ("broader", 0, -1),
        ("broader", 0, 3),
        ("utf8", 0, 0xFF),
        ("utf8", 0, 10),
        ("slots", 0, 2),
        ("slots", 0, 1 << 30),
    ],
)
def test_arrays_that_are_wrong_are_refused(
    tmp_path: Path, name: str, index: int, value: int
) -> None:
    info = build_label_info(SUBJECTS)
    changed = info.keys.slots if name == "slots" else getattr(info, name)
    changed.flags.writeable = True
    changed[index] = value
    refuse_with_right_checksum(tmp_path, info)


HEAD = build_label_info(SUBJECTS).head


@pytest.mark.parametrize(
    "change",
    [
        {"language": "sv"},
        {"columns": HEAD.columns[:-1]},
        {"columns": (*HEAD.columns[:-1], "other")},
        {"columns": (*HEAD.columns[:-1], HEAD.columns[0])},
        {"n_subjects": HEAD.n_subjects + 1},
        {"n_keys": HEAD.n_keys - 1},
        {"n_keys": HEAD.n_keys + 1},
        {"n_texts": HEAD.n_texts + 200},
        {"n_broader": HEAD.n_broader + 200},
    ],
)
def test_heads_that_do_not_fit_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    refuse_with_right_checksum(
        tmp_path, build_label_info(SUBJECTS)._replace(head=HEAD._replace(**change))
    )


def test_a_store_replaces_removes_and_forgets_with_the_model(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", fs=FS)
    info = build_label_info(SUBJECTS)
    with pytest.raises(ModelNotFound):
        store.put_label_info("m", info)
    store.publish("m", DRAFT)
    watch = store.watch()
    watch.look()
    for step in (
        lambda: store.put_label_info("m", info),
        lambda: store.put_label_info("m", build_label_info(SUBJECTS[:2])),
        lambda: store.delete_label_info("m"),
    ):
        before = store.label_info("m")
        step()
        assert watch.look() and not watch.look()
        if before is not None:
            assert before.text("name:fi", 0) == "koira"  # who has it open keeps it
    assert (store.label_info("m"), store.delete_label_info("m")) == (None, False)
    store.put_label_info("m", info)
    store.publish("m", DRAFT)
    assert store.label_info("m") is not None
    store.delete_model("m")
    store.publish("m", DRAFT)
    assert store.label_info("m") is None
