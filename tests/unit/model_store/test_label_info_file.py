"""Tables of label info against dicts; files that were damaged, or that are wrong with a right checksum."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model_store.errors import BadNames, Corrupt, ModelNotFound
from model_store.label_info import (
    HEAD_BYTES,
    Head,
    LabelInfo,
    Subject,
    build_label_info,
    label_info_pieces,
    map_label_info,
)
from model_store.names import find_name
from model_store.store import Store
from tests.faulty_fs import QuickFileSystem
from tests.small_models import small_draft

FS = QuickFileSystem()
SUBJECTS = [
    Subject("http://x/dog", "12", {"fi": "koira", "en": "dog"}, ["http://x/animal", "http://x/unknown"]),
    Subject("http://x/animal", None, {"fi": "eläin"}),
    Subject("http://x/bare", None, {}, ["http://x/animal", "http://x/dog", "http://x/animal"]),
]

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=12)


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
        ([Subject("a", None, {"en": "x"}), Subject("b", None, {"en": "x"})], "name:en", "occurs twice", 1),
        ([Subject("a", None, {"en": "x"}), Subject("b", None, {"en": "x\ny"})], "uri", "control", 1),
        ([Subject("a", "x" * 5000, {})], "uri", "at most 4096 bytes", 0),
        ([Subject("a\ud800", None, {})], "uri", "surrogate", 0),
    ],
)
def test_texts_that_cannot_be_used_name_their_subject(
    subjects: list[Subject], by: str, fault: str, index: int
) -> None:
    with pytest.raises(BadNames, match=fault) as refusal:
        build_label_info(subjects, by)
    assert refusal.value.index == index


@pytest.mark.parametrize(
    ("subjects", "options", "fault"),
    [
        ([], {}, "1 to"),
        (SUBJECTS, {"by": "name:sv"}, "one of uri, notation, fi, en to look for labels by, found 'sv'"),
        (SUBJECTS[1:], {"by": "notation"}, "found none"),
        (SUBJECTS, {"language": "sv"}, "expected one of the languages fi, en"),
        ([Subject("a", None, {f"x{i}": "n" for i in range(65)})], {}, "at most 64"),
    ],
)
def test_tables_that_cannot_be(subjects: list[Subject], options: dict[str, str], fault: str) -> None:
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


def changed(name: str, change: Callable[[Any], Any]) -> Callable[[LabelInfo], LabelInfo]:
    """An info, one of its arrays or a field of its head changed; the digest is made right."""

    def apply(info: LabelInfo) -> LabelInfo:
        if name in Head._fields:
            return info._replace(head=info.head._replace(**{name: change(getattr(info.head, name))}))
        if name == "slots":
            return info._replace(keys=info.keys._replace(slots=change(info.keys.slots.copy())))
        return info._replace(**{name: change(getattr(info, name).copy())})

    return apply


def put(index: int, value: int) -> Callable[[Any], Any]:
    def change(array: Any) -> Any:
        array[index] = value
        return array

    return change


@pytest.mark.parametrize(
    "change",
    [
        changed("offsets", put(1, -1)),
        changed("offsets", put(1, 1 << 40)),
        changed("offsets", put(-1, 3)),
        changed("broader_ptr", put(1, 99)),
        changed("broader_ptr", put(0, 1)),
        changed("broader", put(0, -1)),
        changed("broader", put(0, 3)),
        changed("utf8", put(0, 0xFF)),
        changed("utf8", put(0, 10)),
        changed("slots", put(0, 2)),
        changed("slots", put(0, 1 << 30)),
        changed("language", lambda _: "sv"),
        changed("columns", lambda columns: columns[:-1]),
        changed("columns", lambda columns: (*columns[:-1], "other")),
        changed("columns", lambda columns: (*columns[:-1], columns[0])),
        changed("n_subjects", lambda n: n + 1),
        changed("n_keys", lambda n: n - 1),
        changed("n_keys", lambda n: n + 1),
        changed("n_texts", lambda n: n + 200),
        changed("n_broader", lambda n: n + 200),
    ],
)
def test_what_is_wrong_with_a_right_checksum_is_refused(
    tmp_path: Path, change: Callable[[LabelInfo], LabelInfo]
) -> None:
    info = change(build_label_info(SUBJECTS))
    sha256 = hashlib.sha256(bytes_of(info)[HEAD_BYTES:]).hexdigest()
    refuse(tmp_path, bytes_of(info._replace(head=info.head._replace(sha256=sha256))))


def test_a_store_replaces_removes_and_forgets_with_the_model(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", fs=FS)
    info = build_label_info(SUBJECTS)
    with pytest.raises(ModelNotFound):
        store.put_label_info("m", info)
    draft = small_draft(n_labels=3, n_features=40, n_trees=1)
    store.publish("m", draft)
    generations = [store.generation()]
    for step in (
        lambda: store.put_label_info("m", info),
        lambda: store.put_label_info("m", build_label_info(SUBJECTS[:2])),
        lambda: store.delete_label_info("m"),
    ):
        before = store.label_info("m")
        step()
        generations.append(store.generation())
        if before is not None:
            assert before.text("name:fi", 0) == "koira"  # who has it open keeps it
    assert len(set(map(str, generations))) == 3
    assert generations[0] == generations[-1]
    assert (store.label_info("m"), store.delete_label_info("m")) == (None, False)
    store.put_label_info("m", info)
    store.publish("m", draft)
    assert store.label_info("m") is not None
    store.delete_model("m")
    store.publish("m", draft)
    assert store.label_info("m") is None
