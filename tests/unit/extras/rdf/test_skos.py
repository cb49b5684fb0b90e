"""Concepts of SKOS: what is read of RDF, and what is refused."""

import gzip
import re
from pathlib import Path

import pytest
from tests.helpers.datasets_helpers import refused
from tests.helpers.vocabulary_files import read_info, subjects_of

from xylem.base.errors import BadData
from xylem.datasets.stream import DataFile
from xylem.datasets.subjects import read_subjects
from xylem.extras.rdf.skos import ENTITY_LENGTH_MAX, TEXT_LENGTH_MAX
from xylem.vocabulary.concepts import read_concepts
from xylem.vocabulary.label_info import read_label_info
from xylem_store.label_info import Subject

Graph = pytest.importorskip("rdflib").Graph

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


def test_skos_is_read_from_every_format(tmp_path: Path) -> None:
    graph = Graph().parse(data=TURTLE, format="turtle")
    wanted = sorted(subject._replace(broader=list(subject.broader)) for subject in SKOS)
    for name, content in {
        "v.ttl": TURTLE,
        "v.ttl.gz": gzip.compress(TURTLE.encode()),
        "v.rdf": graph.serialize(format="xml", encoding="utf-8"),
        "v.nt": graph.serialize(format="nt", encoding="utf-8"),
    }.items():
        assert subjects_of(read_info(tmp_path, name, content)) == wanted, name


def test_labels_that_are_resources_are_read(tmp_path: Path) -> None:
    labels = """@prefix xl: <http://www.w3.org/2008/05/skos-xl#> .
<http://x/cat> xl:prefLabel <http://x/l1>, [ xl:literalForm "katt"@sv ] ; xl:altLabel <http://x/l2> .
<http://x/l1> a xl:Label ; xl:literalForm "kissa"@fi . <http://x/l2> xl:literalForm "kisu"@fi .
<http://x/dog> xl:prefLabel [ xl:literalForm "koira"@fi ], <http://x/nothing> ."""  # noqa: E501
    names = {"und": "a cat", "fi": "kissa", "sv": "katt"}
    found = {
        one.uri: one.names for one in subjects_of(read_info(tmp_path, "v.ttl", TURTLE + labels))
    }
    assert found == {one.uri: one.names for one in SKOS} | {"http://x/cat": names}
    with pytest.raises(BadData, match="one skos:prefLabel in 'fi', found 'koira' and 'hauva'"):
        read_info(tmp_path, "v.ttl", TURTLE + labels.replace('"koira"', '"hauva"'))


def test_rdf_that_cannot_be_used(tmp_path: Path) -> None:
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
            read_info(tmp_path, f"v{suffix}", content)


def test_what_is_no_concept_is_passed_over(tmp_path: Path) -> None:
    more = """<http://x/scheme> skos:prefLabel "another name"@en, " "@fi, <http://x/l> .
<http://x/group> a skos:Collection ; skos:prefLabel "a"@en, "b"@en .
<http://x/ontology> rdfs:label ""@en . [] skos:prefLabel "nobody"@en ."""
    assert sorted(subjects_of(read_info(tmp_path, "v.ttl", TURTLE + more))) == sorted(
        subjects_of(read_info(tmp_path, "w.ttl", TURTLE))
    )


def test_a_preferred_name_makes_a_concept(tmp_path: Path) -> None:
    more = """@prefix xl: <http://www.w3.org/2008/05/skos-xl#> .
<http://x/tea> skos:prefLabel "tee"@fi ; skos:broader <http://x/dog> .
<http://x/cup> xl:prefLabel [ xl:literalForm "kuppi"@fi ] . <http://x/no> skos:altLabel "ei"@fi ."""
    subjects = subjects_of(read_info(tmp_path, "v.ttl", TURTLE + more))
    added = [
        one for one in subjects if one not in subjects_of(read_info(tmp_path, "w.ttl", TURTLE))
    ]
    assert [(one.uri, one.names, list(one.broader)) for one in added] == [
        ("http://x/cup", {"fi": "kuppi"}, []),
        ("http://x/tea", {"fi": "tee"}, ["http://x/dog"]),
    ]
    with pytest.raises(BadData, match="<http://x/tea>: expected one skos:prefLabel in 'fi'"):
        read_info(tmp_path, "v.ttl", TURTLE + more + '<http://x/tea> skos:prefLabel "chai"@fi .')


def test_names_without_a_language_are_in_the_one_that_is_asked(tmp_path: Path) -> None:
    (tmp_path / "v.ttl").write_text(TURTLE)
    names = [one.names for one in read_subjects(DataFile(tmp_path / "v.ttl"), "fi").subjects]
    assert names == [{"fi": "koira", "en": "dog"}, {"en": "animal", "fi": "eläin"}, {"fi": "a cat"}]


def test_a_tag_that_is_no_language_names_its_resource(tmp_path: Path) -> None:
    concept = CONCEPT.format("http://a/", "").replace("</skos:Concept>", "{}</skos:Concept>")
    note = "<skos:note xml:lang='zh_tw'>x</skos:note><skos:note xml:lang=''>y</skos:note>"
    info = read_info(tmp_path, "v.rdf", RDF.format(concept.format(note)))
    assert subjects_of(info) == [Subject("http://a/x", None, {"en": "n"}, [])]
    for kind in ("prefLabel", "altLabel"):
        name = f'<skos:{kind} xml:lang="zh_tw">x</skos:{kind}>'
        with pytest.raises(BadData, match=r"<http://a/x>: expected a name .* found 'x' in 'zh_tw'"):
            read_info(tmp_path, "v.rdf", RDF.format(concept.format(name)))


def doctype(*entities: str) -> str:
    return f"<!DOCTYPE rdf:RDF [{''.join(f'<!ENTITY {entity}>' for entity in entities)}]>"


def test_entities_that_grow_or_leak_are_refused(tmp_path: Path) -> None:
    for entities in (
        ['a "xxxxxxxxxx"', f'b "{"&a;" * 10}"', f'c "{"&b;" * 10}"'],
        [f'a "{"x" * (ENTITY_LENGTH_MAX + 1)}"'],
        ['a SYSTEM "file:///etc/hostname"'],
        ['% a SYSTEM "http://127.0.0.1/x.dtd"'],
    ):
        content = doctype(*entities) + RDF.format(CONCEPT.format("http://a/", "&a;"))
        with refused(BadData, "expected entities of", entities):
            read_info(tmp_path, "v.rdf", content)


def test_entities_that_shorten_uris_are_taken(tmp_path: Path) -> None:
    content = doctype('a "http://a/"') + RDF.format(CONCEPT.format("&a;", ""))
    assert subjects_of(read_info(tmp_path, "v.rdf", content)) == [
        Subject("http://a/x", None, {"en": "n"}, [])
    ]


NAMESPACE = "http://www.w3.org/2004/02/skos/core#"
SYNTAX = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
QUOTES = ('"', "'", '"""', "'''")


def turtle(literal: str) -> str:
    subject = f"<http://x/it's> a <{NAMESPACE}Concept> ; # it's \"it\n"
    return f"{subject} <{NAMESPACE}prefLabel> {literal}@en .\n"


def n_triples(literal: str) -> str:
    return (
        f"<http://x/a> <{SYNTAX}type> <{NAMESPACE}Concept> .\n<http://x/a> <{NAMESPACE}prefLabel> "
        f"{literal}@en .\n"
    )


def xml(text: str, entity: str = "x") -> str:
    return (
        f'<!DOCTYPE r [<!ENTITY e "{entity}">]><rdf:RDF xmlns:rdf="{SYNTAX}" xmlns:s="{NAMESPACE}">'
        '<s:Concept rdf:about="http://x/a"><s:prefLabel '
        f'xml:lang="en">{text}</s:prefLabel></s:Concept>'
        "</rdf:RDF>"
    )


N = TEXT_LENGTH_MAX
LONG = {
    **{f"{quote}.ttl": turtle(quote + r"\"" * N + quote) for quote in QUOTES},
    **{f"open {quote}.ttl": turtle(quote + r"\"" * N) for quote in QUOTES},
    "codes.ttl": turtle('"' + r"\u0041" * N + '"'),
    "lines.ttl": turtle('"""' + "a\n" * N + '"""'),
    "quotes.nt": n_triples('"' + r"\"" * N + '"'),
    "codes.nt": n_triples('"' + r"\u0041" * N + '"'),
    "entities.rdf": xml("&e;" * (N // 100), "x" * 200),
    "lines.rdf": xml("a\n" * N),
    "characters.xml": xml("&#65;" * (N + 1)),
}


@pytest.mark.parametrize("name", LONG)
def test_a_long_literal_of_rdf_is_refused(name: str, tmp_path: Path) -> None:
    file = tmp_path / f"concepts.{name.rpartition('.')[2]}"
    file.write_text(LONG[name])
    fault = (
        rf"concepts\.\w+:\d+: expected (literals|texts) of at most {N} "
        rf"(bytes|characters), found a longer"
    )
    with pytest.raises(BadData, match=fault):
        read_subjects(DataFile(file), None)


@pytest.mark.parametrize("suffix", ["ttl", "nt", "rdf"])
def test_many_short_literals_of_rdf_are_read(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"concepts.{suffix}"
    if suffix == "rdf":
        name = f"<s:prefLabel xml:lang='en'>{'n ' * 40}</s:prefLabel>"
        one = f"<s:Concept rdf:about='http://x/N'>{name}</s:Concept>"
        many = "".join(one.replace("N", str(i)) for i in range(1_000))
        file.write_text(xml("a").replace("</rdf:RDF>", f"{many}</rdf:RDF>"))
    else:
        form = turtle if suffix == "ttl" else n_triples
        one = form('"' + r"it's \"it\" " * 10 + '"').replace("http://x/it's", "http://x/a")
        file.write_text("".join(one.replace("x/a", f"x/{i}") for i in range(1_001)))
    assert file.stat().st_size > TEXT_LENGTH_MAX
    assert len(read_subjects(DataFile(file), None).subjects) == 1_001


def test_the_first_of_two_names_can_be_the_name(tmp_path: Path) -> None:
    file = tmp_path / "v.ttl"
    file.write_text(ANOTHER_NAME + '"hauva"@fi.')
    (dog,) = (
        one
        for one in read_subjects(DataFile(file), None, first_name=True).subjects
        if one.names.get("en") == "dog"
    )
    assert dog.names["fi"] == "koira" and ("fi", False, "hauva") in dog.other_names
    assert {"koira", "hauva"} <= set(read_concepts(file, "fi", first_name=True).texts)
    info = read_label_info(file, first_name=True)
    assert {one.names.get("fi") for one in subjects_of(info)} >= {"koira", "eläin"}
    for read in (read_concepts, read_label_info):
        with pytest.raises(BadData, match="found 'koira' and 'hauva': --first-name takes the"):
            read(file)
