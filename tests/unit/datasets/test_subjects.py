"""Tables of subjects: what is read of them, and what is refused."""

import re
from pathlib import Path

import pytest
from tests.helpers.datasets_helpers import refused
from tests.helpers.vocabulary_files import read_info, subjects_of

from xylem.base.errors import BadData, BadParameter
from xylem_store.label_info import Subject, build_label_info

SUBJECTS = [
    Subject("http://x/dog", "12", {"fi": "koira", "en": "dog"}),
    Subject("http://x/animal", None, {"fi": "eläin", "en": "animal"}),
]


def test_tables_are_read_as_annif_reads_them(tmp_path: Path) -> None:
    tsv = "\ufeff<http://x/a>\tfirst\t1.2\n\nhttp://x/b\tsecond \n<http://x/c>\n"
    found = read_info(tmp_path, "v.tsv", tsv, language="en")
    assert subjects_of(found) == [
        Subject("http://x/a", "1.2", {"en": "first"}, []),
        Subject("http://x/b", None, {"en": "second"}, []),
        Subject("http://x/c", None, {}, []),
    ]
    assert found.head.language == "en"
    assert read_info(tmp_path, "v.tsv", tsv).head.languages == ("und",)
    csv = (
        'label_fi,more,uri,label_EN,notation\n"a, b",x,<http://x/a>,,1\n,y,http://x/b,"two '
        '""2""",\n'
    )
    found = read_info(tmp_path, "v.csv", csv)
    assert subjects_of(found) == [
        Subject("http://x/a", "1", {"fi": "a, b"}, []),
        Subject("http://x/b", None, {"en": 'two "2"'}, []),
    ]
    assert read_info(tmp_path, "v.csv", csv, language="en").head.language == "en"
    csv = (
        "uri,notation,label_fi,label_en\nhttp://x/dog,12,koira,dog\nhttp://x/animal,,eläin,animal\n"
    )
    same = build_label_info(SUBJECTS)
    assert read_info(tmp_path, "v.csv", csv).head == same.head


def test_tables_that_cannot_be_used(tmp_path: Path) -> None:
    for name, content, options, fault in (
        (
            "v.tsv",
            "<a>\tx\n<b>\ty\n<a>\tz\n",
            {},
            ":3: expected each URI once, found 'a' of line 1",
        ),
        ("v.tsv", "\tx\n", {}, ":1: expected <URI>"),
        ("v.tsv", "<>\tx\n", {}, ":1: expected <URI>"),
        ("v.tsv", "\n\n", {}, "expected subjects, found none"),
        ("v.tsv", b"<a>\tx\n<b>\t\xe4\n", {}, ":2: expected UTF-8, found byte 0xe4"),
        ("v.tsv", "<a>\tx\x07\n", {}, ":1: <a>: expected no control characters"),
        ("v.tsv", "<a>\t" + "x" * 5000 + "\n", {}, ":1: <a>: expected at most 4096 bytes"),
        (
            "v.tsv",
            "<a>\tx\n",
            {"key_kind": "notation"},
            "expected subjects with notation, found none",
        ),
        ("v.tsv", "<a>\tx\n", {"key_kind": "fi"}, "found 'fi'"),
        (
            "v.csv",
            "",
            {},
            "expected a header with uri and label_LANGUAGE, as label_fi, found an empty file",
        ),
        ("v.csv", "uri,notation\na,1\n", {}, ":1: expected a header with uri"),
        ("v.csv", "subject,label_fi\na,1\n", {}, "found subject, label_fi"),
        (
            "v.csv",
            "uri,label_fi,label_FI\n",
            {},
            ":1: expected each column once, found 'label_FI' twice",
        ),
        ("v.csv", "uri,label_\na,b\n", {}, ":1: expected label_ and a language"),
        (
            "v.csv",
            "uri,label_fi\na,b\nb,c,d\n",
            {},
            ":3: expected 2 cells, as the header has, found 3",
        ),
        ("v.csv", 'uri,label_fi\na,"b\n', {}, ":2: expected a closing quote"),
        ("v.csv", "uri,label_fi\n ,b\n", {}, ":2: expected a URI, found an empty cell"),
        (
            "v.csv",
            "uri,label_fi\na,b\nb,c\nc,b\n",
            {"key_kind": "fi"},
            ":4: <c>: expected distinct names",
        ),
        (
            "v.csv",
            "uri,label_fi\na,b\n",
            {"language": "sv"},
            "expected one of the languages fi, found 'sv'",
        ),
        ("v.doc", "", {}, "expected a file named"),
        ("v.csv.gz", "uri,label_fi\na,b\n", {}, "expected gzip data"),
    ):
        with refused(BadData, f"^{tmp_path / name}.*{re.escape(fault)}", content):
            read_info(tmp_path, name, content, **options)


def test_a_language_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadParameter, match="expected a language"):
        read_info(tmp_path, "v.tsv", "<a>\tx\n", language="Finnish!")
