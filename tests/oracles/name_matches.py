"""Concepts in a text by their names, the slow and obvious way: every name against every text."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from xylem.vocabulary.search import FAR_GAP, NEAR_GAP, PLACES_MAX
from xylem.vocabulary.text_words import PART_CHARACTERS_MIN, REST_CHARACTERS_MIN
from xylem.vocabulary.trie import CONCEPTS_A_NAME_MAX, NAME_WORDS_MAX


class OracleName(NamedTuple):
    """A name of a concept: its words, and those in brackets
    behind it (None: there are no brackets).
    """

    concept: int
    kind: int
    words: tuple[str, ...]
    qualifier: tuple[str, ...] | None = None


class Found(NamedTuple):
    """A name that a text has."""

    name: OracleName
    order: tuple[object, ...]
    span: int
    count: int
    first: int
    last: int
    begins: list[int]
    part: float = 0.0


def parts_of(kept: Sequence[OracleName], text: Sequence[str]) -> list[Found]:
    """Return the names of one word that begin words which are no names, by their first place."""
    single = {name.words[0] for name in kept if len(name.words) == 1}
    places: dict[str, list[int]] = {}
    for i, word in enumerate(text):
        begins = [word[:n] for n in range(PART_CHARACTERS_MIN, len(word) - REST_CHARACTERS_MIN + 1)]
        if word not in single and (found := [begin for begin in begins if begin in single]):
            places.setdefault(found[-1], []).append(i)
    return [
        Found(name, (), 1, len(at), at[0], at[-1], [], max(_share(part, text[i]) for i in at))
        for part, at in places.items()
        for name in kept
        if name.words == (part,)
    ]


def _share(part: str, word: str) -> float:
    return int(1000 * len(part.encode()) / len(word.encode())) / 1000


def kept_names(names: Sequence[OracleName]) -> list[OracleName]:
    """Return the names that count: one of a concept for each sequence
    of words, none that too many share.
    """
    best: dict[tuple[int, tuple[str, ...]], OracleName] = {}
    for name in names:
        key = (name.concept, name.words)
        is_better = key not in best or _rank(name) < _rank(best[key])
        if is_better and 1 <= len(name.words) <= NAME_WORDS_MAX:
            best[key] = name
    sharing = Counter(name.words for name in best.values())
    return [name for name in best.values() if sharing[name.words] <= CONCEPTS_A_NAME_MAX]


def _rank(name: OracleName) -> tuple[int, bool]:
    return name.kind, name.qualifier is not None


def rarity(names: Sequence[OracleName]) -> dict[str, tuple[int, str]]:
    """Return the order of words: how many of all names have each, then the word."""
    having = Counter(word for name in names for word in set(name.words))
    return {word: (n, word) for word, n in having.items()}


def _begins(words: Sequence[str], text: Sequence[str]) -> list[int]:
    return [
        i
        for i in range(len(text) - len(words) + 1)
        if tuple(text[i : i + len(words)]) == tuple(words)
    ]


def _nearest(text: Sequence[str], word: str, place: int) -> int:
    return min(
        (i for i, other in enumerate(text) if other == word), key=lambda i: (abs(i - place), i)
    )


def _find(
    name: OracleName, text: Sequence[str], order: Mapping[str, tuple[int, str]]
) -> Found | None:
    """Return where a name stands, None where a word of it is lacking.

    Texts have few places of a word.
    """
    distinct = sorted(set(name.words), key=order.__getitem__)
    if not set(distinct) <= set(text):
        return None
    anchor = min(distinct, key=text.count)
    anchors = [i for i, word in enumerate(text) if word == anchor]
    assert len(anchors) <= PLACES_MAX or len(distinct) == 1
    windows = []
    for place in anchors:
        places = [_nearest(text, word, place) for word in distinct]
        windows.append((max(places) - min(places) + 1, min(places), max(places)))
    if min(windows)[0] > len(distinct) + FAR_GAP:
        return None
    near = [window for window in windows if window[0] <= len(distinct) + NEAR_GAP]
    chosen = near or [min(windows, key=lambda window: window[0])]
    return Found(
        name,
        (len(distinct), [order[word] for word in distinct], [order[word] for word in name.words]),
        min(window[0] for window in windows),
        len(chosen),
        chosen[0][1],
        chosen[-1][2],
        _begins(name.words, text),
    )


def candidates(
    names: Sequence[OracleName],
    text: Sequence[str],
    idf: Mapping[str, float],
    broader: Mapping[int, set[int]],
    related: Mapping[int, set[int]],
) -> dict[int, dict[str, float]]:
    """Return the features of each concept that a text has a name of, by the names of NAME_FEATURES.

    text: its words; idf: of each word; broader, related: the concepts that are so to each concept.
    """
    order, kept = rarity(names), kept_names(names)
    found = [one for name in kept if (one := _find(name, text, order)) is not None]
    parts = parts_of(kept, text)
    cover = [0] * len(text)
    for one in found:
        for begin in one.begins if len(one.name.words) > 1 else ():
            for i in range(begin, begin + len(one.name.words)):
                cover[i] = max(cover[i], len(one.name.words))
    owners: dict[frozenset[str], set[int]] = {}
    for name in kept:
        owners.setdefault(frozenset(name.words), set()).add(name.concept)
    rows = {}
    for concept in {one.name.concept for one in [*found, *parts]}:
        mine = [one for one in found if one.name.concept == concept]
        of_words = [one for one in parts if one.name.concept == concept]
        best = min(mine, key=lambda one: (-_score(one), one.name.kind, one.order), default=None)
        best = best or of_words[0]
        rows[concept] = {
            **_summed(mine, of_words, len(text)),
            **_of_best(best, text, idf, cover),
            "concepts": math.log(len(owners[frozenset(best.name.words)])),
        }
    for concept, row in rows.items():
        row["broader"] = math.log1p(len(broader.get(concept, set()) & rows.keys()))
        row["narrower"] = math.log1p(sum(concept in broader.get(other, set()) for other in rows))
        row["related"] = math.log1p(len(related.get(concept, set()) & rows.keys()))
    return rows


def _score(one: Found) -> float:
    k = len(set(one.name.words))
    return k * (k / one.span)


def _summed(mine: Sequence[Found], parts: Sequence[Found], n: int) -> dict[str, float]:
    closeness = [len(set(one.name.words)) / one.span for one in mine]
    by_kind = {
        kind: max(
            (c for c, one in zip(closeness, mine, strict=True) if one.name.kind == at), default=0.0
        )
        for at, kind in enumerate(("preferred", "alternative", "hidden"))
    }
    first = min(one.first for one in [*mine, *parts]) / n
    last = max(one.last for one in [*mine, *parts]) / n
    return {
        **by_kind,
        "names": math.log1p(len(mine)),
        "adjacent": math.log1p(sum(len(one.begins) for one in mine)),
        "occurrences": math.log1p(sum(one.count for one in mine)),
        "share": min(1.0, sum(one.count * len(set(one.name.words)) for one in mine) / n),
        "first": first,
        "last": last,
        "spread": last - first,
        "parts": math.log1p(sum(one.count for one in parts)),
        "part": max((one.part for one in parts), default=0.0),
        "text_words": math.log1p(n),
    }


def _of_best(
    best: Found, text: Sequence[str], idf: Mapping[str, float], cover: Sequence[int]
) -> dict[str, float]:
    words = best.name.words
    inside = [cover[begin] > len(words) for begin in best.begins]
    qualifier = best.name.qualifier
    k = 0 if best.part else len(set(words))
    return {
        "words": k,
        "closeness": k / best.span,
        "idf_mean": sum(idf[word] for word in words) / len(words),
        "idf_max": max(idf[word] for word in words),
        "inside": sum(inside) / max(1, len(inside)),
        "qualified": float(qualifier is not None),
        "qualifier": sum(word in text for word in qualifier) / len(qualifier) if qualifier else 0.0,
    }
