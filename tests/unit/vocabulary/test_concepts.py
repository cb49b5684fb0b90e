"""Vocabularies as concepts: names, links, and files that are refused."""

from pathlib import Path

import pytest

from xylem.base.errors import BadData, BadParameter
from xylem.vocabulary.concepts import NEIGHBOURS_MAX, Concepts, read_concepts

TURTLE = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix xl: <http://www.w3.org/2008/05/skos-xl#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
<http://x/dog> a skos:Concept ; skos:prefLabel "koira"@fi, "dog"@en ;
    skos:altLabel "hurtta"@fi, "hound"@en, ""@fi ;
    skos:altLabel <http://x/y> ; skos:hiddenLabel "koirra"@fi ; skos:notation "1" ;
    skos:broader <http://x/animal>, <http://x/old>, <http://x/dog> .
<http://x/animal> a skos:Concept ; skos:prefLabel "eläin"@fi ; skos:related <http://x/cat> ;
    skos:notation "2" ; skos:broader <http://x/dog> ; xl:altLabel [ xl:literalForm "elukka"@fi ] ;
    xl:hiddenLabel [ xl:literalForm "elain"@fi ] .
<http://x/cat> a skos:Concept ; skos:prefLabel "kissa" ; skos:altLabel "mirri"@FI, "mirri"@fi .
<http://x/old> a skos:Concept ; skos:prefLabel "vanha"@fi ; owl:deprecated true .
<http://x/kept> a skos:Concept ; skos:prefLabel "cats only"@en ; owl:deprecated false .
"""


def read(directory: Path, content: str, name: str = "v.ttl", **options: str) -> Concepts:
    path = directory / name
    if path.suffix == ".ttl":
        pytest.importorskip("rdflib")
    path.write_text(content)
    return read_concepts(path, **options)


def short(concepts: Concepts) -> list[str]:
    return [uri.removeprefix("http://x/") for uri in concepts.keys]


def names_of(concepts: Concepts) -> list[tuple[str, int, str]]:
    """(The end of the concept's URI, kind, name) of each name."""
    rows = zip(concepts.owners.tolist(), concepts.kinds.tolist(), concepts.texts, strict=True)
    return sorted((short(concepts)[owner], kind, text) for owner, kind, text in rows)


def links_of(concepts: Concepts, kind: str) -> dict[str, list[str]]:
    (ptr, ids), names = getattr(concepts, kind), short(concepts)
    assert len(ptr) == len(names) + 1
    found = {
        name: [names[other] for other in ids[ptr[i] : ptr[i + 1]]] for i, name in enumerate(names)
    }
    return {name: others for name, others in found.items() if others}


def test_names_of_a_language_are_read_without_deprecated_ones(tmp_path: Path) -> None:
    concepts = read(tmp_path, TURTLE, language="fi")
    assert sorted(short(concepts)) == ["animal", "cat", "dog", "kept"]
    assert concepts.retired == {"http://x/old"}
    expected = [
        ("animal", 0, "eläin"),
        ("animal", 1, "elukka"),
        ("animal", 2, "elain"),
        ("cat", 0, "kissa"),
    ]
    expected += [
        ("cat", 1, "mirri"),
        ("dog", 0, "koira"),
        ("dog", 1, "hurtta"),
        ("dog", 2, "koirra"),
    ]
    assert names_of(concepts) == expected
    assert links_of(concepts, "broader") == {"dog": ["animal"], "animal": ["dog"]}
    assert links_of(concepts, "related") == {"animal": ["cat"], "cat": ["animal"]}
    assert ("dog", 1, "hound") in names_of(read(tmp_path, TURTLE))
    english = names_of(read(tmp_path, TURTLE, language="en"))
    assert english == [
        ("cat", 0, "kissa"),
        ("dog", 0, "dog"),
        ("dog", 1, "hound"),
        ("kept", 0, "cats only"),
    ]


def test_labels_may_be_notations_or_names(tmp_path: Path) -> None:
    assert sorted(read(tmp_path, TURTLE, key_kind="notation").keys) == ["1", "2"]
    assert sorted(read(tmp_path, TURTLE, key_kind="en", language="fi").keys) == ["cats only", "dog"]
    with pytest.raises(BadData, match="expected distinct fi keys, found 'koira' twice"):
        read(tmp_path, TURTLE.replace("eläin", "koira"), key_kind="fi")


def test_tables_are_read_as_label_info_reads_them(tmp_path: Path) -> None:
    concepts = read(
        tmp_path, "<http://x/a>\tyksi\n<http://x/b>\tkaksi (luku)\n", "v.tsv", language="fi"
    )
    assert names_of(concepts) == [("a", 0, "yksi"), ("b", 0, "kaksi (luku)")]
    table = "uri,notation,label_fi,label_sv\nhttp://x/a,1,yksi,ett\nhttp://x/b,2,,tva\n"
    assert names_of(read(tmp_path, table, "v.csv", language="fi")) == [("a", 0, "yksi")]
    assert read(tmp_path, table, "v.csv", key_kind="sv", language="fi").keys == ["ett", "tva"]


TABLE = "uri,label_fi,label_sv\nhttp://x/a,yksi,ett\n"


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (TABLE, {"language": "Finnish!"}, "language: expected a language, as en or pt-br"),
        (TABLE, {"key_kind": "no tag"}, "by: expected a language"),
        (
            TABLE,
            {"key_kind": "notation"},
            "v.csv: expected 1 to .* concepts with notation, found 0",
        ),
        (TABLE, {"language": "en"}, r"v\.csv: expected names in en, found fi, sv"),
        (
            "uri,label_fi\nhttp://x/a,\n",
            {"language": "fi"},
            "v.csv: expected names in fi, found none",
        ),
    ],
)
def test_bad_files_are_refused(
    tmp_path: Path, content: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises((BadData, BadParameter), match=message):
        read(tmp_path, content, "v.csv", **options)


def test_a_concept_has_so_many_neighbours_at_most(tmp_path: Path) -> None:
    others = [f"<http://x/{i:03}>" for i in range(NEIGHBOURS_MAX + 1)]
    many = "".join(f'{one} a skos:Concept ; skos:prefLabel "n" . ' for one in others)
    head = (
        TURTLE.partition("\n")[0]
        + '<http://x/top> a skos:Concept ; skos:prefLabel "t" ; skos:broader '
    )
    head += ", ".join(others) + " . "
    concepts = read(tmp_path, head + many)
    assert links_of(concepts, "broader")["top"] == [f"{i:03}" for i in range(NEIGHBOURS_MAX)]
