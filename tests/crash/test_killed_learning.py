"""`xylem learn` under kill -9, at each of its steps: nothing is half published."""

from pathlib import Path

import pytest
from tests.helpers.modules import json_from

WHICH = pytest.mark.parametrize("which", ["steps", pytest.param("all", marks=pytest.mark.soak)])

# each thread pool has one thread, so that the process may fork
ONE_THREAD = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}

STEPS = {"read_rows", "measure", "decide", "publish", "tune_thresholds", "promote"}


@WHICH
def test_a_run_that_is_killed_leaves_what_is_served(which: str, tmp_path: Path) -> None:
    outcomes = json_from("tests.helpers.learners", tmp_path, 2, which, **ONE_THREAD)
    assert {outcome["moment"] for outcome in outcomes} >= STEPS
    for outcome in outcomes:
        killed = outcome["killed"]
        assert outcome["died"] and killed["versions"] in ([1], [1, 2]), outcome
        assert (killed["latest"], killed["tuned"], killed["info"]) == (1, True, True), outcome
    n_versions = [len(outcome["killed"]["versions"]) for outcome in outcomes]
    assert n_versions == sorted(n_versions) and {*n_versions} == {1, 2}
    followed = [outcome for outcome in outcomes if "next" in outcome]
    assert {len(outcome["killed"]["versions"]) for outcome in followed} == {1, 2}
    for outcome in followed:
        after = outcome["next"]
        assert outcome["status"] == outcome["left"] == 0, outcome
        assert len(after["versions"]) == len(outcome["killed"]["versions"]) + 1
        assert after["latest"] == after["versions"][-1] and after["tuned"], outcome


@WHICH
def test_a_first_run_that_is_killed_has_a_whole_version(which: str, tmp_path: Path) -> None:
    """By the rule of its recipe only a first version is promoted."""
    outcomes = json_from("tests.helpers.learners", tmp_path, 1, which, **ONE_THREAD)
    for outcome in outcomes:
        killed = outcome["killed"]
        present = killed["versions"], killed["latest"]
        assert outcome["died"] and present in (([], 0), ([1], 1)), outcome
    followed = [outcome for outcome in outcomes if "next" in outcome]
    assert {outcome["killed"]["latest"] for outcome in followed} == {0, 1}
    for outcome in followed:
        after = outcome["next"]
        assert outcome["status"] == outcome["left"] == 0, outcome
        assert (len(after["versions"]), after["latest"]) == (outcome["killed"]["latest"] + 1, 1)
        assert after["info"], outcome
