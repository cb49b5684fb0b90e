"""Concepts are found in texts by their names: against the slow matcher, and by odd names."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray
from tests.helpers.datasets_helpers import check_sparse
from tests.oracles.name_matches import OracleName, candidates
from tests.oracles.trees import row_dicts

from xylem.base.errors import BadData
from xylem.vocabulary.concepts import Concepts, concepts_of
from xylem.vocabulary.matching import NAME_FEATURES, NameMatcher
from xylem.vocabulary.names import NameParameters, build_names, count_words, kept_frequencies
from xylem.vocabulary.search import FAR_GAP, PLACES_MAX, VISITS_A_WORD
from xylem.vocabulary.trie import CONCEPTS_A_NAME_MAX, NAME_WORDS_MAX
from xylem_store.errors import Corrupt
from xylem_store.label_info import Subject

WORDS = ["aa", "bb", "cc", "äääää", "äääääbb", "ff"]
LONGER = ["ääääämm", "äääääbbää", "äääääm", "äääääbbääcc"]
N_CONCEPTS = 6
PLAIN = NameParameters()
F = len(NAME_FEATURES)

names = st.builds(
    OracleName,
    st.integers(0, N_CONCEPTS - 1),
    st.integers(0, 2),
    st.lists(st.sampled_from(WORDS), max_size=4).map(tuple),
    st.none() | st.lists(st.sampled_from([*WORDS, "gg"]), min_size=1, max_size=2).map(tuple),
)
links = st.lists(
    st.tuples(st.integers(0, N_CONCEPTS - 1), st.integers(0, N_CONCEPTS - 1)), max_size=12
)
texts = st.lists(st.sampled_from([*WORDS, *LONGER, "zz", "zz", "gg"]), max_size=40)


def uri(concept: int) -> str:
    return f"http://x/{concept}"


def concepts_with(
    given_names: list[OracleName], broader: list[tuple[int, int]], related: list[tuple[int, int]]
) -> Concepts:
    """N_CONCEPTS concepts, as readers make them: subjects with other names have them
    in `others`.
    """
    return linked(broader)._replace(
        texts=[text_of(name) for name in given_names],
        owners=np.array([name.concept for name in given_names], np.int32),
        kinds=np.array([name.kind for name in given_names], np.uint8),
        related=linked(related).broader,
    )


def linked(pairs: list[tuple[int, int]]) -> Concepts:
    """N_CONCEPTS concepts, of which the second of each pair is above the first."""
    above = {i: [uri(other) for one, other in pairs if one == i] for i in range(N_CONCEPTS)}
    return concepts_of([Subject(uri(i), None, {"und": "x"}, above[i]) for i in range(N_CONCEPTS)])


def text_of(name: OracleName) -> str:
    words = " ".join(name.words)
    return words if name.qualifier is None else f"{words} ({' '.join(name.qualifier)})"


def rows_of(matcher: NameMatcher, texts: list[str]) -> list[dict[int, dict[str, float]]]:
    """The features of each text's concepts, by their names; those that are 0 are there."""
    rows = matcher.rows_of_words(matcher.words(texts))
    check_sparse(rows)
    assert rows.n_features == matcher.n_concepts * F
    assert 0 not in rows.values
    found: list[dict[int, dict[str, float]]] = [{} for _ in texts]
    for row, columns in zip(found, row_dicts(rows[:3]), strict=True):
        for column, value in columns.items():
            row.setdefault(column // F, dict.fromkeys(NAME_FEATURES, 0.0))[
                NAME_FEATURES[column % F]
            ] = value
    return found


@given(st.lists(names, min_size=1, max_size=12), links, links, st.lists(texts, max_size=3))
def test_candidates_are_those_of_the_slow_matcher(
    given_names: list[OracleName],
    broader: list[tuple[int, int]],
    related: list[tuple[int, int]],
    words: list[list[str]],
) -> None:
    # a name that is brackets alone is the words in them
    given_names = [
        name
        if name.words or name.qualifier is None
        else name._replace(words=name.qualifier, qualifier=None)
        for name in given_names
    ]
    if not any(name.words for name in given_names):
        return
    frequencies = count_words([" ".join(text) for text in words] + ["aa"], PLAIN)
    arrays = build_names(concepts_with(given_names, broader, related), PLAIN, frequencies)
    counts = dict(zip(frequencies.words, frequencies.counts.tolist(), strict=True))
    idf = {
        word: math.log((2 + len(words)) / (1 + counts.get(word, 0))) + 1 for word in [*WORDS, "gg"]
    }
    above = {i: {b for a, b in broader if a == i != b} for i in range(N_CONCEPTS)}
    beside = {i: {b for a, b in related if a == i != b} for i in range(N_CONCEPTS)}
    found = rows_of(NameMatcher(arrays, PLAIN), [" ".join(text) for text in words])
    for text, row in zip(words, found, strict=True):
        wanted = candidates(given_names, text, idf, above, beside)
        assert row.keys() == wanted.keys()
        for concept, features in wanted.items():
            assert features.keys() == set(NAME_FEATURES)
            assert row[concept] == pytest.approx(features, rel=1e-5, abs=1e-6)


def vocabulary(*subjects: tuple[list[str], dict[str, Any]]) -> Concepts:
    """Concepts with these names, the first one preferred, and fields of Subject."""
    found = []
    for i, ((first, *more), fields) in enumerate(subjects):
        others = [("en", False, name) for name in more]
        found.append(Subject(uri(i), None, {"en": first}, other_names=others, **fields))
    return concepts_of(found)


def matcher_of(*names: list[str], parameters: NameParameters = PLAIN) -> NameMatcher:
    return NameMatcher(
        build_names(vocabulary(*((given, {}) for given in names)), parameters), parameters
    )


def test_names_are_matched_by_stems_in_any_order_and_explained() -> None:
    names = ["music history", "histories of musics"], ["bank (river)"]
    matcher = matcher_of(*names, parameters=NameParameters(stem="en"))
    text = "The History of Music, told by the banks of a river"
    (row,) = rows_of(matcher, [text])
    assert sorted(row) == [0, 1]
    assert row[0]["adjacent"] == pytest.approx(math.log(2))
    assert (row[0]["alternative"], row[0]["preferred"]) == (1, pytest.approx(2 / 3))
    assert (row[1]["qualified"], row[1]["qualifier"]) == (1, 1)
    assert row[1]["adjacent"] == pytest.approx(math.log(2))
    assert [tuple(name) for name in matcher.explain(text, 0)] == [
        ("histories of musics", 1, ["history", "of", "music"]),
        ("music history", 0, ["history", "music"]),
    ]
    assert matcher.explain(text, 1)[0].words == ["banks"]
    assert matcher.explain("nothing", 1) == []


def test_words_are_those_of_scripts_without_blanks_too() -> None:
    matcher = matcher_of(["北京大学"], ["大学"])
    (row,) = rows_of(matcher, ["我在北京大学学习"])
    assert sorted(row) == [0, 1]
    assert row[1]["inside"] == 1 > row[0]["inside"]


def test_a_text_with_many_words_and_an_empty_one_are_rows() -> None:
    matcher = matcher_of(["aa bb"], ["cc"])
    many = " ".join(["aa", *["zz"] * 20, "bb"] * (2 * PLACES_MAX)) + " cc"
    rows = rows_of(matcher, ["", "!", many, "cc", many])
    assert [sorted(row) for row in rows] == [[], [], [0, 1], [1], [0, 1]]
    assert rows[2] == rows[4] == rows_of(matcher, [many])[0]
    assert rows[2][0]["occurrences"] == pytest.approx(math.log(PLACES_MAX))  # the first is not near
    assert rows[2][1]["occurrences"] == pytest.approx(math.log(2))


HOSTILE = {
    "one letter": ["x"],
    "empty": [" "],
    "only marks": ["!?", "(...)", "()"],
    "10 kB, one word": ["q" * 10_000],
    "10 kB, many words": [" ".join(["word"] * 2500)],
    "one word too many": [" ".join(f"w{i}" for i in range(NAME_WORDS_MAX + 1))],
    "a lone surrogate": ["\ud800x"],
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_names_that_cannot_be_found_are_left_out(hostile: list[str]) -> None:
    text = "a good word w0 x q " + " ".join(hostile)[:20_000]
    with_it, without = matcher_of(["good word"], hostile), matcher_of(["good word"], ["unseen"])
    assert rows_of(with_it, [text])[0].keys() == rows_of(without, [text])[0].keys() == {0}
    with pytest.raises(BadData, match="expected names with a word of two characters"):
        matcher_of(hostile)


def test_words_of_a_name_may_be_so_far_apart_and_no_farther() -> None:
    matcher = matcher_of(["aa bb"])
    near, far = (" ".join(["aa", *["zz"] * n, "bb"]) for n in (FAR_GAP, FAR_GAP + 1))
    assert [sorted(row) for row in rows_of(matcher, [near, far])] == [[0], []]


def test_so_much_is_looked_at_for_a_word_and_no_more() -> None:
    words = [f"w{i}" for i in range(1, 8)]
    most = VISITS_A_WORD - 2 * len(words) - 1  # a set of words and the one below it are two
    for n, found in ((most, True), (most + 1, False)):
        orders = [" ".join(order) for order in itertools.islice(itertools.permutations(words), n)]
        frequent = [f"w8 x{i}" for i in range(n + 2)]  # so that w8 comes after the others
        text = " ".join([*words, "w8"])
        (row,) = rows_of(matcher_of(orders, [text], frequent), [text])
        assert sorted(row) == ([0, 1] if found else [0])


def test_the_longest_name_and_one_of_many_concepts_are_matched() -> None:
    longest = " ".join(f"w{i}" for i in range(NAME_WORDS_MAX))
    (row,) = rows_of(matcher_of([longest], ["w1 w1"]), [f"zz {longest} zz"])
    assert row[0]["words"] == NAME_WORDS_MAX
    assert (row[1]["words"], row[1]["adjacent"], row[1]["closeness"]) == (
        1,
        0,
        1,
    )  # it repeats a word
    for n, found in ((CONCEPTS_A_NAME_MAX, True), (CONCEPTS_A_NAME_MAX + 1, False)):
        (row,) = rows_of(
            matcher_of(*[["shared name"]] * n, ["other"]), ["a shared name and an other"]
        )
        assert row.keys() == ({*range(n + 1)} if found else {n})


def test_many_names_and_circles_leave_features_finite() -> None:
    many = [f"w{i} w{i + 1}" for i in range(20_000)]
    above = [
        {"broader": [uri((i + 1) % 3), uri(i)], "related": [uri((i + 2) % 3)]} for i in range(3)
    ]
    concepts = vocabulary((many, above[0]), (["w5", "w5", "W5"], above[1]), (["w6"], above[2]))
    matcher = NameMatcher(build_names(concepts, PLAIN), PLAIN)
    text = " ".join(f"w{i}" for i in range(3000))
    (row,) = rows_of(matcher, [text])
    assert row.keys() == {0, 1, 2}
    assert row[0]["adjacent"] == pytest.approx(math.log1p(2999))
    assert row[0]["share"] == 1
    assert all(
        row[i][kind] == pytest.approx(math.log(2)) for i in row for kind in ("broader", "narrower")
    )
    assert row[1]["names"] == pytest.approx(math.log(2))


def test_another_vocabulary_inherits_the_frequencies() -> None:
    texts = ["aa bb", "aa cc", "aa dd"]
    first = build_names(vocabulary((["aa"], {})), PLAIN, count_words(texts, PLAIN))
    whole = build_names(vocabulary((["bb aa"], {})), PLAIN, count_words(texts, PLAIN))
    again = build_names(vocabulary((["bb aa"], {})), PLAIN, kept_frequencies(first))
    assert whole.keys() == again.keys()
    assert all(np.array_equal(whole[name], again[name]) for name in whole)


def test_labels_of_data_may_be_more_than_the_concepts() -> None:
    subjects = (["aa"], {"related": [uri(1)]}), (["bb"], {"broader": [uri(0)]})
    concepts = vocabulary(*subjects)
    labels = ["gone", uri(1), uri(0), "old"]
    placed = concepts.placed(labels)
    assert placed.keys == labels
    (row,) = rows_of(NameMatcher(build_names(placed, PLAIN), PLAIN), ["bb aa"])
    (before,) = rows_of(NameMatcher(build_names(concepts, PLAIN), PLAIN), ["bb aa"])
    assert (row[2], row[1]) == (before[0], before[1])
    with pytest.raises(BadData, match="expected a label for every concept"):
        concepts.placed(labels[:2])


ARRAYS = build_names(
    vocabulary(
        (["aa bb", "cc (dd)"], {"broader": [uri(1)]}), (["aa bb cc", "bb"], {"related": [uri(0)]})
    ),
    PLAIN,
)


def damaged(array: NDArray[Any]) -> list[Any]:
    """The array with each of its numbers too large or too small, too short, of
    another type, gone.
    """
    changed: list[Any] = [
        None,
        array[:-1],
        np.append(array, array[-1:]),
        array.astype(np.float64),
        array[:0],
    ]
    for i in range(len(array)):
        for value in (-2, 200):
            changed.append(array.copy())
            changed[-1][i] = value % 256 if array.dtype == np.uint8 else value
    as_it_was = array.dtype, array.tolist()
    return [one for one in changed if one is None or (one.dtype, one.tolist()) != as_it_was]


FREE = {"names/frequencies", "names/n_texts", "names/texts"}
"""No kernel reads these."""


@pytest.mark.parametrize("name", sorted(ARRAYS.keys() - FREE))
def test_damaged_arrays_are_refused_or_answer_finite_rows(name: str) -> None:
    refused = 0
    for array in damaged(ARRAYS[name]):
        arrays = {**ARRAYS, name: array}
        if array is None:
            del arrays[name]
        try:
            matcher = NameMatcher(arrays, PLAIN)
            rows = matcher.rows_of_words(matcher.words(["aa bb cc dd", "cc bb bb aa"]))
        except Corrupt:
            refused += 1
        else:
            assert np.isfinite(rows.values).all()
    assert refused


def test_a_name_that_begins_a_compound_is_found_and_explained() -> None:
    matcher = matcher_of(
        ["kirjasto"], ["kirjastokortit"], ["kortti"], parameters=NameParameters(stem="fi")
    )
    whole, part = rows_of(matcher, ["uusi kirjastokortti", "uusi kirjastoauto"])
    assert sorted(whole) == [1]
    assert sorted(part) == [0]
    assert (part[0]["preferred"], part[0]["names"], part[0]["words"]) == (0, 0, 0)
    assert part[0]["parts"] == pytest.approx(math.log(2))
    assert matcher.explain("uusi kirjastoauto", 0)[0].words == ["kirjastoauto"]
    assert matcher.explain("uusi kirjastokortti", 1)[0].words == ["kirjastokortti"]
