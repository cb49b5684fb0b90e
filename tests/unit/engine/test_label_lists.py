"""Lists of labels: labels, names of the label info, and branches of its concepts."""

import random
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from xylem.base.errors import UnknownLabel
from xylem.engine.label_lists import BRANCHES_MAX, Branch, label_ids
from xylem_store.label_info import LabelInfo, Subject, build_label_info
from xylem_store.names import build_names

ANIMALS = [
    Subject("u:animal", None, {"fi": "eläin", "en": "animal"}),
    Subject("u:dog", None, {"fi": "koira", "en": "dog"}, ["u:animal"]),
    Subject("u:puppy", None, {"fi": "pentu", "en": "puppy"}, ["u:dog", "u:young"]),
    Subject("u:young", None, {"en": "young"}),
    Subject("u:seal", None, {"fi": "hylje", "en": "seal"}, ["u:animal"]),
    Subject("u:stamp", None, {"en": "seal"}),
    Subject("u:poison", None, {"sv": "gift"}),
    Subject("u:present", None, {"en": "gift"}),
]
LABELS = ["u:puppy", "u:dog", "u:seal", "u:stamp", "u:poison", "koira", "plain"]
INFO = build_label_info(ANIMALS)


def meant(items: Sequence[str | Branch], info: LabelInfo | None = INFO) -> list[list[str]]:
    ids, ptr = label_ids(build_names(LABELS), items, "list[{}]".format, info)
    return [[LABELS[i] for i in ids[start:end]] for start, end in pairwise(ptr.tolist())]


def test_a_label_wins_over_a_uri_and_a_uri_over_a_name() -> None:
    assert meant(["koira", "plain"]) == meant(["koira", "plain"], None) == [["koira"], ["plain"]]
    # the name "gift" is also that of a subject without a label, which counts for no list of labels
    assert meant(["dog", "pentu", "gift", "u:dog"]) == [
        ["u:dog"],
        ["u:puppy"],
        ["u:poison"],
        ["u:dog"],
    ]
    assert meant([]) == []


def test_a_branch_is_a_concept_and_all_below_it() -> None:
    branches = [Branch(text) for text in ("eläin", "u:animal", "u:dog", "young", "u:poison")]
    animals = ["u:puppy", "u:dog", "u:seal"]
    expected = [animals, animals, ["u:puppy", "u:dog"], ["u:puppy"], ["u:poison"]]
    assert meant(branches) == expected
    assert meant(["plain", branches[3], "dog"]) == [["plain"], ["u:puppy"], ["u:dog"]]
    allowed = np.array([1, 0, 1, 1, 1, 1, 1], np.uint8)
    ids, _ = label_ids(build_names(LABELS), branches[:1], "{}".format, INFO, allowed)
    assert ids.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("items", "fault", "place"),
    [
        (["plain", "hund"], "a label of the model, found 'hund'", 1),
        (["pupy"], "found 'pupy'; did you mean 'puppy'?", 0),
        (["Koira"], "did you mean 'koira'?", 0),
        (["u:dgo"], "did you mean 'u:dog'?", 0),
        (["animal"], "a label of the model, found 'animal'", 0),
        (["dog", "seal"], "'seal', a name of 2: u:seal, u:stamp", 1),
        ([Branch("gift")], "'gift', a name of 2: u:poison, u:present", 0),
        ([Branch("nothing")], "a concept of the label info, found 'nothing'", 0),
        ([Branch("plain")], "a concept of the label info, found 'plain'", 0),
        (["dog", ""], "found an empty name", 1),
        (["dog", "a\0b"], "no control characters", 1),
        (["\ud800"], "a lone surrogate", 0),
        ([Branch("dog")] * (BRANCHES_MAX + 1), "at most 100 branches", BRANCHES_MAX),
    ],
)
def test_what_means_no_label_is_refused(items: list[str | Branch], fault: str, place: int) -> None:
    with pytest.raises(UnknownLabel) as caught:
        meant(items)
    assert fault in str(caught.value) and caught.value.path == f"list[{place}]"


def test_without_label_info_there_are_labels_alone() -> None:
    assert len(meant([Branch("dog")] * BRANCHES_MAX)) == BRANCHES_MAX
    for items, fault in (
        (["dog"], "found 'dog'"),
        ([Branch("plain")], "a concept of the label info"),
    ):
        with pytest.raises(UnknownLabel, match=fault):
            meant(items, None)


def test_branches_of_any_graph_are_those_of_a_slow_walk() -> None:
    draw = random.Random(7)
    uris = [f"u:{i}" for i in range(40)]
    for n_edges in (0, 20, 60, 200):  # many edges make circles
        above = {uri: set(draw.choices(uris, k=n_edges // 40 + 1)) for uri in uris[: n_edges // 2]}
        info = build_label_info([Subject(uri, uri, {}, [*above.get(uri, ())]) for uri in uris])
        below = {uri: {uri} for uri in uris}
        for _ in uris:
            for uri, broader in above.items():
                for parent in broader:
                    below[parent] |= below[uri]
        table = build_names(uris)
        ids, ptr = label_ids(table, list(map(Branch, uris)), "{}".format, info)
        for i, uri in enumerate(uris):
            assert {uris[label] for label in ids[ptr[i] : ptr[i + 1]]} == below[uri]
