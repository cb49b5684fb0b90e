"""Rules of a training move an alias, if the figures of both versions say so."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.job_places import ANYWAY, COMBINE, VOCABULARY, Place, rule, train_plainly
from tests.helpers.jobs_helpers import TRAINING, write_data

from xylem.admin.jobs.job import PromotionVerdict
from xylem.admin.jobs.kinds import METRICS, run_job
from xylem.admin.jobs.promotion import judge_conditions
from xylem.admin.jobs.requests import PromotionCondition


@pytest.mark.parametrize(
    ("conditions", "promoted"),
    [
        ((("P@5", -0.2), ("macro_f", 0.0)), True),
        ([(metric, -100.0) for metric in METRICS], True),
        ((("P@1", 0.01),), False),
        ((("P@1", -100.0), ("PSP@3", 0.01)), False),
        ((), True),
    ],
)
def test_an_alias_moves_if_the_rule_says_so(
    place: Place, conditions: tuple[tuple[str, float], ...], promoted: bool
) -> None:
    verdict = place.train(promotion=rule("latest", *conditions)).promotion
    assert (verdict.baseline, verdict.promoted) == (1, promoted), verdict
    assert len(verdict.reasons) == max(len(conditions), 1)
    assert place.store.versions("m") == (1, 2)
    assert place.store.resolve("m") == (2 if promoted else 1)


def test_a_rule_for_no_alias_moves_none(place: Place) -> None:
    job = place.train(promotion={"alias": None})
    assert (job.state, job.version, job.promotion) == ("succeeded", 2, None)
    assert place.store.info("m").aliases == {"latest": 1}
    place.train(model="first", promotion={"alias": None})
    assert place.store.info("first").aliases == {"latest": 1}


@pytest.mark.parametrize("alias", ["stable", "latest"])
def test_without_a_version_to_compare_the_first_is_promoted(place: Place, alias: Any) -> None:
    verdict = place.train(model="new", promotion=rule(alias, ("P@1", 5.0))).promotion
    assert (
        verdict.promoted and verdict.baseline is None and "no other version" in verdict.reasons[0]
    )
    assert place.store.resolve("new", alias) == 1


def test_a_version_that_cannot_be_opened_is_not_replaced(place: Place) -> None:
    array = next((place.store.root / "models/m/versions/1/arrays").iterdir())
    array.chmod(0o644)
    array.write_bytes(array.read_bytes()[:-1] + b"?")
    verdict = place.train(promotion=ANYWAY).promotion
    assert not verdict.promoted and "expected to measure version 1" in verdict.reasons[0]
    assert place.store.resolve("m") == 1


def test_conditions_tell_each_figure_and_need_both() -> None:
    conditions = [
        PromotionCondition(metric="P@5", least_change=-0.2),
        PromotionCondition(metric="PSP@1"),
    ]
    judge = partial(judge_conditions, conditions, {"P@5": 40.0, "PSP@1": 3.0})
    holds, reasons = judge({"P@5": 40.2, "PSP@1": 3.0})
    assert holds and "from 40.20 to 40.00" in reasons[0]
    holds, reasons = judge({"P@5": 40.21, "PSP@1": None})
    assert (
        not holds
        and "not enough" in reasons[0]
        and "no such figure of the one before" in reasons[1]
    )


def rows_of_strangers(path: Path, n_known: int, n_rows: int = 40) -> Path:
    """Rows of which so many have a label that the versions of these
    tests know; the others have new ones.
    """
    lines = [{"text": f"first{i % 3} word1", "labels": [f"label{i % 3}"]} for i in range(n_known)]
    lines += [{"text": "first0 word1", "labels": [f"strange{i}"]} for i in range(n_rows - n_known)]
    return write_lines(path, lines)


UNCHANGED = rule("latest", ("P@5", 0.0))


@pytest.mark.parametrize("kind", ["training", "extend", "combine", "vocabulary"])
def test_nothing_is_promoted_on_rows_of_labels_unknown_to_both(place: Place, kind: str) -> None:
    rows_of_strangers(place.data / "strange.jsonl", 0)
    gate = {"valid": "strange.jsonl", "promotion": UNCHANGED}
    (place.data / "names.csv").write_text(VOCABULARY)
    if kind == "training":
        job = place.train(**gate)
    elif kind == "extend":
        place.train(model="kept", keep_rows=True)
        write_lines(place.data / "new.jsonl", [{"text": "word0 word1", "labels": ["brand new"]}])
        job = place.do("extend", {"model": "kept", "data": "new.jsonl", **gate})
    else:
        combination = {**COMBINE, "data": "valid.jsonl"}
        place.do("combine", combination)
        vocabulary = {"model": "both", "vocabulary": "names.csv"}
        job = place.do(kind, {**(combination if kind == "combine" else vocabulary), **gate})
    verdict = job.promotion
    assert not verdict.promoted and verdict.baseline == 1, verdict
    told = "; ".join(verdict.reasons)
    assert "from 0.00 to 0.00" in told
    assert (
        "expected at least 10 validation rows with a label that the new version has learnt, found 0"
        in told
    )
    for version in (1, 2):
        shown = f"{job.model}@{version} has not learnt, as 'strange0': each counts as missed"
        assert f"40 of 40 validation rows have only labels that {shown}" in told
    assert place.store.resolve(job.model) == 1


@pytest.mark.parametrize(("n_known", "promoted"), [(9, False), (10, True)])
def test_a_promotion_needs_ten_rows_of_learnt_labels(
    place: Place, n_known: int, promoted: bool
) -> None:
    rows_of_strangers(place.data / "strange.jsonl", n_known)
    verdict = place.train(valid="strange.jsonl", promotion=UNCHANGED).promotion
    assert verdict.promoted == promoted, verdict
    assert any(
        reason.startswith(f"{40 - n_known} of 40 validation rows") for reason in verdict.reasons
    )


@pytest.mark.parametrize("trainer", ["label-tree", "fastxml"])
def test_labels_that_are_listed_but_never_learnt_are_unknown(place: Place, trainer: str) -> None:
    lines = "".join(f"{i % 3} {i % 3}:1 {4 + i % 2}:1\n" for i in range(60))
    (place.data / "rows.txt").write_text(f"60 6 4\n{lines}")
    (place.data / "listed.txt").write_text("20 6 4\n" + "3 3:1\n" * 20)
    numbers = {"trainer": trainer, "model": "numbers", "data": "rows.txt", "valid": "listed.txt"}
    for _ in range(2):
        job = place.train(**numbers, promotion=UNCHANGED)
    assert not job.promotion.promoted and "found 0" in "; ".join(job.promotion.reasons), (
        job.promotion
    )


def test_a_verdict_says_who_was_trained_on_its_rows(place: Place) -> None:
    verdict = place.train(valid="train.jsonl", promotion=ANYWAY).promotion
    told = [reason for reason in verdict.reasons if "was trained on the validation rows" in reason]
    assert [reason.split()[0] for reason in told] == ["m@2", "m@1"]
    other = write_data(place.data / "other.jsonl", 120, seed=3)
    first = {**COMBINE, "vocabulary": None, "language": None, "data": other.name}
    place.do("combine", first)
    gate = {"valid": "train.jsonl", "promotion": rule("latest", ("P@1", -100.0))}
    told = place.do("combine", {**first, **gate}).promotion.reasons
    assert any(reason.startswith("both@2 was trained on the validation rows") for reason in told), (
        told
    )
    clean = place.train(valid="valid.jsonl", promotion=ANYWAY).promotion
    assert not any("trained on" in reason for reason in clean.reasons)


def test_a_verdict_is_acted_on_once_and_undoes_nobodys_decision(place: Place) -> None:
    job_id = place.submit("training", {**TRAINING, "promotion": rule("latest")})
    place.die(job_id, "publish")
    run_job(place.claimed(job_id))  # all is done, but nobody was told
    assert place.store.resolve("m") == 2
    place.store.promote("m", 1)  # an admin's decision
    train_plainly(place.data.parent)
    place.desk.end_lease(job_id)
    job = place.run(job_id)
    assert job.promotion == PromotionVerdict(True, job.promotion.reasons, "latest", 1)
    assert place.store.resolve("m") == 3
