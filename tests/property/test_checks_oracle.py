"""The compiled checks agree with the plain-Python oracle on good and on mutated versions."""

import dataclasses
import random

import numpy as np
import pytest
from tests.helpers.mutations import mutated
from tests.helpers.small_models import calibrated_draft, random_rerank, small_draft, softmax_draft
from tests.oracles.version_oracle import is_version

from xylem_store.checks import check_version
from xylem_store.errors import Corrupt
from xylem_store.origin import REPORT, json_array
from xylem_store.version import manifest_of

SMALL = {"n_features": 33, "n_trees": 1}
REPORTED = {"purity": [0.5], "balance": {"depth": 3}}
TAIL = {**random_rerank(1, 4, 33), REPORT: json_array(REPORT, REPORTED)}
DRAFTS = {
    "small": small_draft(n_labels=3, n_features=40, n_trees=1),
    "two trees": small_draft(1, n_labels=25, arity=20, n_features=33, share=0.2),
    "bfloat16": small_draft(
        2, weights="bfloat16", n_labels=20, arity=17, n_features=1100, share=0.01
    ),
    "decision": small_draft(3, kind="decision-tree", n_labels=6, n_features=64),
    "tail": small_draft(6, kind="decision-tree", link="argmax", n_labels=4, **SMALL, extra=TAIL),
    "calibrated": calibrated_draft(10, n_labels=4, **SMALL),
    "one label": small_draft(4, n_labels=1, n_features=1),
    "softmax": softmax_draft(7, dim=5, n_words=4, n_labels=5),
    "softmax window": softmax_draft(8, dim=3, n_words=4, n_places=2, n_turned=1, n_labels=4),
    "softmax half": softmax_draft(9, dim=3, n_words=4, n_labels=4, weights="int8", is_half=True),
    "full blocks": small_draft(5, n_labels=4, n_features=2048, share=0.9, n_trees=1),
}


@pytest.mark.parametrize("name", DRAFTS)
def test_checks_pass_what_the_builder_makes(name: str) -> None:
    draft = DRAFTS[name]
    assert is_version(manifest_of(draft), draft.arrays())


@pytest.mark.parametrize("place", [-1, -16])
def test_a_zero_with_a_sign_is_no_padding(place: int) -> None:
    manifest, arrays = manifest_of(DRAFTS["small"]), dict(DRAFTS["small"].arrays())
    arrays["ensemble/dense"] = np.array(arrays["ensemble/dense"])
    arrays["ensemble/dense"][place] = -0.0
    assert not is_version(manifest, arrays)
    with pytest.raises(Corrupt, match="zero in the padding"):
        check_version(manifest, arrays)


@pytest.mark.parametrize("name", [name for name in DRAFTS if name != "full blocks"])
@pytest.mark.parametrize("rounds", [1000, pytest.param(20_000, marks=pytest.mark.soak)])
def test_checks_equal_the_oracle(name: str, rounds: int) -> None:
    manifest, arrays = manifest_of(DRAFTS[name]), DRAFTS[name].arrays()
    rng = random.Random(name)
    n_refused = 0
    for number in range(rounds):
        found, changed = mutated(rng, manifest, arrays)
        passed = True
        try:
            check_version(found, changed)
        except Corrupt as error:
            assert error.where and error.expected
            passed = False
        same_shapes = dataclasses.astuple(found) == dataclasses.astuple(manifest) and all(
            changed[n].shape == array.shape for n, array in arrays.items()
        )
        if same_shapes or passed:
            assert passed == is_version(found, changed), number
        n_refused += not passed
    assert n_refused > rounds // 2
