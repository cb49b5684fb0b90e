"""Features that a training makes or chooses: vocabularies, `features.kind=auto`, rows
without any.
"""

import gzip
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.datasets_helpers import refused, write_lines

import xylem
from xylem.base.errors import BadData, BadInput, BadParameter
from xylem.extras.rdf.skos import ENTITY_LENGTH_MAX
from xylem.vocabulary.label_info import read_label_info
from xylem.workflows.choose_features import BLOCKS, CANDIDATES, ROWS_MIN, TOLERANCE, divide
from xylem.workflows.train import TrainReport, TrainRequest, train_and_publish
from xylem_store.label_info import LabelInfo, Subject, build_label_info
from xylem_store.store import Store

PREFIXES = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
"""
TURTLE = (
    PREFIXES
    + """
<http://x/animal> skos:narrower <http://x/dog> .
<http://x/dog> a skos:Concept ; skos:prefLabel "koira"@fi, "dog"@EN ; skos:notation "12" .
<http://x/animal> a skos:Concept ; skos:prefLabel "eläin"@fi ; rdfs:label "animal"@en, "Eläin"@fi .
<http://x/cat> a skos:Concept ; skos:prefLabel "a \\n  cat" ; skos:broader <http://x/animal>, <http://y/z> .
<http://x/scheme> a skos:ConceptScheme ; skos:prefLabel "a scheme"@en .
"""  # noqa: E501
)
ANOTHER_NAME = TURTLE + "<http://x/dog> skos:prefLabel "
SKOS = [
    Subject("http://x/dog", "12", {"fi": "koira", "en": "dog"}, ["http://x/animal"]),
    Subject("http://x/animal", None, {"fi": "eläin", "en": "animal"}),
    Subject("http://x/cat", None, {"und": "a cat"}, ["http://x/animal"]),
]
RDF = (
    '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"'
    ' xmlns:skos="http://www.w3.org/2004/02/skos/core#">{}</rdf:RDF>'
)
CONCEPT = (
    '<skos:Concept rdf:about="{}x"><skos:prefLabel '
    'xml:lang="en">n{}</skos:prefLabel></skos:Concept>'
)


def subjects_of(info: LabelInfo) -> list[Subject]:
    """The subjects of a table, by their URIs."""
    found = []
    for i in range(info.head.n_subjects):
        names = {tag: name for tag in info.head.languages if (name := info.text(f"name:{tag}", i))}
        above = [info.text("uri", at) or "" for at in info.above(i)]
        found.append(Subject(info.text("uri", i) or "", info.text("notation", i), names, above))
    return sorted(found)


def read(directory: Path, name: str, content: str | bytes, **options: str) -> LabelInfo:
    path = directory / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_label_info(path, **options)


def test_skos_is_read_from_every_format(tmp_path: Path) -> None:
    graph = pytest.importorskip("rdflib").Graph().parse(data=TURTLE, format="turtle")
    wanted = sorted(subject._replace(broader=list(subject.broader)) for subject in SKOS)
    for name, content in {
        "v.ttl": TURTLE,
        "v.ttl.gz": gzip.compress(TURTLE.encode()),
        "v.rdf": graph.serialize(format="xml", encoding="utf-8"),
        "v.nt": graph.serialize(format="nt", encoding="utf-8"),
    }.items():
        assert subjects_of(read(tmp_path, name, content)) == wanted, name


def test_labels_that_are_resources_are_read(tmp_path: Path) -> None:
    pytest.importorskip("rdflib")
    labels = """@prefix xl: <http://www.w3.org/2008/05/skos-xl#> .
<http://x/cat> xl:prefLabel <http://x/l1>, [ xl:literalForm "katt"@sv ] ; xl:altLabel <http://x/l2> .
<http://x/l1> a xl:Label ; xl:literalForm "kissa"@fi . <http://x/l2> xl:literalForm "kisu"@fi .
<http://x/dog> xl:prefLabel [ xl:literalForm "koira"@fi ], <http://x/nothing> ."""  # noqa: E501
    names = {"und": "a cat", "fi": "kissa", "sv": "katt"}
    found = {one.uri: one.names for one in subjects_of(read(tmp_path, "v.ttl", TURTLE + labels))}
    assert found == {one.uri: one.names for one in SKOS} | {"http://x/cat": names}
    with pytest.raises(BadData, match="one skos:prefLabel in 'fi', found 'koira' and 'hauva'"):
        read(tmp_path, "v.ttl", TURTLE + labels.replace('"koira"', '"hauva"'))


def test_tables_are_read_as_annif_reads_them(tmp_path: Path) -> None:
    tsv = "\ufeff<http://x/a>\tfirst\t1.2\n\nhttp://x/b\tsecond \n<http://x/c>\n"
    found = read(tmp_path, "v.tsv", tsv, language="en")
    assert subjects_of(found) == [
        Subject("http://x/a", "1.2", {"en": "first"}, []),
        Subject("http://x/b", None, {"en": "second"}, []),
        Subject("http://x/c", None, {}, []),
    ]
    assert found.head.language == "en"
    assert read(tmp_path, "v.tsv", tsv).head.languages == ("und",)
    csv = (
        'label_fi,more,uri,label_EN,notation\n"a, b",x,<http://x/a>,,1\n,y,http://x/b,"two '
        '""2""",\n'
    )
    found = read(tmp_path, "v.csv", csv)
    assert subjects_of(found) == [
        Subject("http://x/a", "1", {"fi": "a, b"}, []),
        Subject("http://x/b", None, {"en": 'two "2"'}, []),
    ]
    assert read(tmp_path, "v.csv", csv, language="en").head.language == "en"
    csv = (
        "uri,notation,label_fi,label_en\nhttp://x/dog,12,koira,dog\nhttp://x/animal,,eläin,animal\n"
    )
    same = build_label_info([subject._replace(broader=()) for subject in SKOS[:2]])
    assert read(tmp_path, "v.csv", csv).head == same.head


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
            read(tmp_path, name, content, **options)


def test_rdf_that_cannot_be_used(tmp_path: Path) -> None:
    pytest.importorskip("rdflib")
    for suffix, content, fault in (
        (".ttl", ANOTHER_NAME, "found what does not parse"),
        (".ttl", "no Turtle at all", "found what does not parse"),
        (".ttl", "", "expected resources of type skos:Concept, found none"),
        (".ttl", ANOTHER_NAME + '"hauva"@fi.', "prefLabel in 'fi', found 'koira'"),
        (".ttl", ANOTHER_NAME + '" "@sv.', "expected a name in a language, found ' '"),
        (".ttl", ANOTHER_NAME + "<http://x/l>.", "expected a name in a language"),
        (
            ".ttl",
            PREFIXES + '<dog> a skos:Concept; skos:prefLabel "d"@en.',
            "absolute URIs, found 'dog'",
        ),
        (
            ".ttl",
            PREFIXES + '<x:y> a skos:Concept; skos:prefLabel "d\\u0007"@en.',
            "no control characters",
        ),
        (".nt", "<http://a> <http://b> .", "found what does not parse"),
        (".rdf", "<a>", "found what does not parse"),
        (".rdf", "<html/>", "expected resources of type skos:Concept, found none"),
        (".rdf", TURTLE, "found what does not parse"),
    ):
        with refused(BadData, f"^{tmp_path}/v{suffix}: .*{re.escape(fault)}", content):
            read(tmp_path, f"v{suffix}", content)


def doctype(*entities: str) -> str:
    return f"<!DOCTYPE rdf:RDF [{''.join(f'<!ENTITY {entity}>' for entity in entities)}]>"


def test_entities_that_grow_or_leak_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("rdflib")
    for entities in (
        ['a "xxxxxxxxxx"', f'b "{"&a;" * 10}"', f'c "{"&b;" * 10}"'],
        [f'a "{"x" * (ENTITY_LENGTH_MAX + 1)}"'],
        ['a SYSTEM "file:///etc/hostname"'],
        ['% a SYSTEM "http://127.0.0.1/x.dtd"'],
    ):
        content = doctype(*entities) + RDF.format(CONCEPT.format("http://a/", "&a;"))
        with refused(BadData, "expected entities of", entities):
            read(tmp_path, "v.rdf", content)


def test_entities_that_shorten_uris_are_taken(tmp_path: Path) -> None:
    pytest.importorskip("rdflib")
    content = doctype('a "http://a/"') + RDF.format(CONCEPT.format("&a;", ""))
    assert subjects_of(read(tmp_path, "v.rdf", content)) == [
        Subject("http://a/x", None, {"en": "n"}, [])
    ]


def test_a_language_that_is_none_and_rdflib_that_is_missing_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadParameter, match="expected a language"):
        read(tmp_path, "v.tsv", "<a>\tx\n", language="Finnish!")
    monkeypatch.setitem(sys.modules, "rdflib", None)
    with pytest.raises(BadInput, match=r"pip install 'xylem-serve\[rdf\]'"):
        read(tmp_path, "v.ttl", TURTLE)


ENDINGS = ("", "s", "ed", "ing", "able", "less")
ROOTS = ("walk", "print", "colour", "sort", "paint", "count")


def inflected(n_rows: int) -> list[dict[str, Any]]:
    """Texts of one word that mostly occurs once; its label is its
    root: characters tell it, words do not.
    """
    rng = np.random.default_rng(5)
    rows = []
    for i in range(n_rows):
        root = ROOTS[i % len(ROOTS)]
        letters = "".join(rng.choice(list("qxz"), 6))
        rows.append({"text": f"{letters}{root}{ENDINGS[i % 5]}{letters}", "labels": [root]})
    return rows


def train(
    directory: Path, rows: list[dict[str, Any]], *parameters: str, **options: Any
) -> TrainReport:
    """Train on rows: a label tree, if nothing else is said."""
    data = write_lines(directory / "train.jsonl", rows)
    request = TrainRequest(
        **{"trainer": "label-tree", "data": data, "parameters": parameters, **options}
    )
    return train_and_publish(Store(directory / "store"), "model", request)


def test_auto_takes_characters_where_they_tell_more(tmp_path: Path) -> None:
    found = train(tmp_path, inflected(240), "features.kind=auto", "features.rows=200").features
    assert (found["chosen"], found["rows"], found["held_out"]) == ("words+chars", 200, 40)
    assert [tried["features"] for tried in found["tried"]] == list(CANDIDATES)
    best = max(tried["precision"] for tried in found["tried"])
    chosen = next(tried for tried in found["tried"] if tried["features"] == found["chosen"])
    assert chosen["precision"] >= best - TOLERANCE
    assert all(0 < tried["features_us"] < tried["us_per_row"] for tried in found["tried"])
    manifest = Store(tmp_path / "store").manifest("model", 1)
    assert manifest.features["kind"] == "words+chars" and manifest.data.rows == 240


@given(
    n_rows=st.integers(ROWS_MIN, 3000),
    rows_max=st.integers(ROWS_MIN, 4000),
    seed=st.integers(0, 1 << 40),
)
def test_blocks_of_neighbours_are_held_out(n_rows: int, rows_max: int, seed: int) -> None:
    held, rest = divide(n_rows, rows_max, seed)
    drawn = min(n_rows, rows_max)
    assert (len(held), len(rest)) == (drawn // 5, drawn - drawn // 5)
    both = np.concatenate([held, rest])
    assert len(np.unique(both)) == drawn and both.min() >= 0 and both.max() < n_rows
    for part in (held, rest):
        assert (np.diff(part) > 0).all()
    n_blocks = 1 + np.count_nonzero(np.diff(held) > 1)
    assert (
        n_blocks <= len(held) // max(1, len(held) // BLOCKS) + 2
    )  # one cut short, one at the file's end
    again = divide(n_rows, rows_max, seed)
    assert all(np.array_equal(one, other) for one, other in zip((held, rest), again, strict=True))


def test_what_only_tells_neighbours_apart_does_not_decide(tmp_path: Path) -> None:
    """Four rows in a row share their label and a word that no others
    have: it tells nothing of new rows.
    """
    by_root = sorted(inflected(3000), key=lambda row: row["labels"])
    groups = [by_root[first : first + 4] for first in range(0, 3000, 4)]
    rows = [
        {"text": f"{row['text']} of{number}", "labels": row["labels"]}
        for number, place in enumerate(np.random.default_rng(2).permutation(len(groups)))
        for row in groups[place]
    ]
    assert train(tmp_path, rows, "features.kind=auto").features["chosen"] == "words+chars"


def test_auto_takes_words_where_they_are_enough_and_is_repeatable(tmp_path: Path) -> None:
    rows = [{"text": f"kind{i % 5} of{i % 3} thing", "labels": [str(i % 5)]} for i in range(100)]
    parameters = ("features.kind=auto", "features.lowercase=false")
    runs = [train(tmp_path, rows, *parameters, seed=3).features for _ in range(2)]
    tried = [[(one["features"], one["precision"]) for one in run["tried"]] for run in runs]
    assert tried[0] == tried[1]
    assert runs[0]["chosen"] == "words"
    features = Store(tmp_path / "store").manifest("model", 2).features
    assert (features["kind"], features["lowercase"], features["ngram_max"]) == ("tfidf", False, 1)


def test_auto_is_refused_where_it_cannot_choose(tmp_path: Path) -> None:
    named = [{"features": {"a": 1}, "labels": ["x"]}] * 60
    for rows, more, fault in (
        (inflected(49), (), "expected 50 rows or more with auto, found 49"),
        (named, (), "expected texts with auto, found instances of another kind"),
        (inflected(60), ("features.rows=49",), r"features\.rows: expected an integer from 50"),
    ):
        with refused(BadParameter, fault):
            train(tmp_path, rows, "features.kind=auto", *more)


def test_rows_without_features_are_warned_of_if_they_are_more_than_a_tenth(tmp_path: Path) -> None:
    for n_empty, warnings in (
        (2, None),
        (3, ["3 of 20 training rows have no feature (kind tfidf): nothing is learnt from them"]),
    ):
        rows = [{"text": f"word{i % 4}", "labels": [str(i % 4)]} for i in range(20 - n_empty)]
        rows += [{"text": "! ?", "labels": ["0"]} for _ in range(n_empty)]
        assert train(tmp_path, rows).warnings == warnings
    rows = [{"text": "" if i % 2 else "a word", "labels": [str(i % 4)]} for i in range(20)]
    parameters = ("solver=sgd", "features.kind=hashing")
    assert train(tmp_path, rows, *parameters, trainer="plt", stream=True).warnings == [
        "10 of 20 training rows have no feature (kind hashing): nothing is learnt from them"
    ]


TOPICS = {
    "zh": ("我们在北京大学学习", "他喜欢吃苹果和香蕉", "火车从上海开往南京"),
    "th": ("ฉันเรียนที่มหาวิทยาลัย", "เขาชอบกินแอปเปิลกับกล้วย", "รถไฟไปกรุงเทพทุกวัน"),
    "km": ("ខ្ញុំរៀននៅសាកលវិទ្យាល័យ", "គាត់ចូលចិត្តញ៉ាំផ្លែប៉ោម", "រថភ្លើងទៅភ្នំពេញ"),
    "lo": ("ຂ້ອຍຮຽນຢູ່ມະຫາວິທະຍາໄລ", "ລາວມັກກິນໝາກແອັບເປິ້ນ", "ລົດໄຟໄປວຽງຈັນ"),
}


@pytest.mark.parametrize("language", TOPICS)
@pytest.mark.parametrize("kind", ["tfidf", "chars", "words+chars", "hashing"])
def test_scripts_without_blanks_are_learnt(language: str, kind: str) -> None:
    sentences = TOPICS[language]
    # the runs of training and of the question differ, so that no run as a whole is known
    texts = [sentence[cut:] for cut in range(4) for sentence in sentences]
    labels = [[str(i % 3)] for i in range(len(texts))]
    parameters = {
        "features_kind": kind,
        **({"features_n_features": 4096} if kind == "hashing" else {}),
    }
    model = xylem.train(texts, labels, trainer="ovr", threads=1, **parameters)
    asked = [f"{sentence[5:]}{sentence[1:3]}" for sentence in sentences]
    assert [answer[0][0] for answer in model.predict(asked, 1)] == ["0", "1", "2"]
