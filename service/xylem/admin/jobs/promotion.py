"""Decide whether an alias moves to a new version, by the rule of a job.

Both versions are measured on the same validation rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from xylem.admin.jobs.context import JobContext, patiently
from xylem.admin.jobs.job import PromotionVerdict
from xylem.admin.jobs.requests import PromotionCondition, PromotionRule
from xylem.admin.registry.registry import Registry
from xylem.base import DEFAULT_COLUMNS, TableColumns
from xylem.thresholds import ThresholdDatabase
from xylem.vocabulary import featurizer_of
from xylem.workflows import read_labelled, valid_figures
from xylem_store import Cause, NotFound, StoreError

# How often the alias may move while the versions are compared; then it stays where it is.
ROUNDS_MAX = 3

# The fewest validation rows with a label that the new version has learnt, for a promotion.
#
# Two versions that know no label of the rows have equal figures. With ten rows, one row is 10
# points of P@1; with fewer than six, no difference can be told from chance, even if all rows favour
# one version (`xylem.evaluation.bootstrap`).
ROWS_LEAST = 10


class Measured(NamedTuple):
    """Figures of a version on the validation rows.

    rows_learnt  how many rows have a label that the version has learnt
    remarks      sentences on why the figures mean less than they seem to
    """

    figures: Mapping[str, float]
    rows_learnt: int = 0
    remarks: tuple[str, ...] = ()


def promote_if(
    context: JobContext,
    rule: PromotionRule,
    version: int,
    valid: Path | None,
    columns: TableColumns = DEFAULT_COLUMNS,
) -> PromotionVerdict:
    """Move the alias of a rule to a version if the rule says so; store and return the verdict.

    The verdict is stored with the job before the alias moves. A later run that finds a verdict acts
    on it, but only while the alias names the same version as then: so nobody's later decision is
    undone. Raises the errors of opening and measuring a version.
    """
    alias = rule.alias
    assert alias is not None  # callers do not pass a rule without an alias
    verdict = context.job.promotion
    if verdict is not None:
        _act(context, verdict, version)
        return verdict

    def measure(number: int) -> Measured:
        """Return the figures of a version on the validation rows, at tuned thresholds if any."""
        assert valid is not None  # conditions without validation rows are refused
        opened = context.store.open(context.job.model, number)
        tuned = patiently(
            lambda: ThresholdDatabase(context.database).load(
                context.job.model, number, opened.manifest.digest
            )
        )
        # a version of words is compared with one of vectors by its words
        takes_vectors = featurizer_of(opened).vector_numbers > 0
        read_columns = columns if takes_vectors else columns._replace(vector="", vectors=())
        labelled = read_labelled(opened, valid, context.on_progress, read_columns)
        return Measured(
            valid_figures(opened, labelled, context.threads, context.on_progress, tuned).metrics,
            labelled.rows_learnt(opened)[0],
            tuple(labelled.remarks(opened)),
        )

    new = measure(version) if rule.conditions else Measured({})
    for _ in range(ROUNDS_MAX):
        baseline = version_of_alias(context, alias)
        verdict = _judge(rule.conditions, alias, version, baseline, new, measure)
        if version_of_alias(context, alias) == baseline:
            break
    else:
        verdict = PromotionVerdict(
            False,
            (f"{alias} moved {ROUNDS_MAX} times while the versions were compared",),
            alias,
            baseline,
        )
    decision = verdict
    patiently(lambda: context.leases.record_verdict(context.claim, decision))
    if not decision.promoted:
        context.store.note_refusal(context.job.model, alias, version, _cause(context, decision))
    _act(context, decision, version)
    return decision


def version_of_alias(context: JobContext, alias: str) -> int | None:
    """Return the version that an alias names; None if there is no such alias."""
    try:
        return context.store.alias(context.job.model, alias).version
    except NotFound:
        return None


def judge_conditions(
    conditions: list[PromotionCondition], new: Mapping[str, float], old: Mapping[str, float]
) -> tuple[bool, list[str]]:
    """Return whether all conditions hold for two versions' figures, and a sentence for each."""
    holds = True
    reasons = []
    for condition in conditions:
        new_value = new.get(condition.metric)
        old_value = old.get(condition.metric)
        expectation = f"expected a change of at least {condition.least_change:+g}"
        if new_value is None or old_value is None:
            version_text = "the new version" if new_value is None else "the one before"
            holds = False
            reasons.append(
                f"{condition.metric}: {expectation}, found no such figure of {version_text}"
            )
            continue
        change = new_value - old_value
        is_met = (
            change >= condition.least_change - 1e-9
        )  # the decimals may be equal, the floats not
        holds = holds and is_met
        reasons.append(
            f"{condition.metric}: {expectation}, found {change:+.2f}, from {old_value:.2f} to "
            f"{new_value:.2f}{('' if is_met else ': not enough')}"
        )
    return holds, reasons


def _judge(
    conditions: list[PromotionCondition],
    alias: str,
    version: int,
    baseline: int | None,
    new: Measured,
    measure: Callable[[int], Measured],
) -> PromotionVerdict:
    """Return the verdict of the rule on a version and the baseline, which the alias names."""
    if baseline is None or baseline == version:
        reason = f"{alias} named no other version before: nothing to compare with"
        return PromotionVerdict(True, (reason,), alias, None)
    if not conditions:
        return PromotionVerdict(
            True, ("no condition: every new version is promoted",), alias, baseline
        )
    try:
        old = measure(baseline)
    except StoreError as error:  # the baseline is corrupt, or was deleted
        reason = f"expected to measure version {baseline}, which {alias} names, found: {error}"
        return PromotionVerdict(False, (reason,), alias, baseline)
    holds, reasons = judge_conditions(conditions, new.figures, old.figures)
    if new.rows_learnt < ROWS_LEAST:
        holds = False
        reasons.append(
            f"expected at least {ROWS_LEAST} validation rows with a label that the new "
            "version has learnt, "
            f"found {new.rows_learnt}"
        )
    return PromotionVerdict(holds, (*reasons, *new.remarks, *old.remarks), alias, baseline)


def _act(context: JobContext, verdict: PromotionVerdict, version: int) -> None:
    """Move the alias if the verdict says so, and the alias names the same version as then."""
    if verdict.promoted and version_of_alias(context, verdict.alias) in (verdict.baseline, version):
        Registry(context.store, context.database).promote(
            context.job.model, version, verdict.alias, _cause(context, verdict)
        )


def _cause(context: JobContext, verdict: PromotionVerdict) -> Cause:
    """Return the cause for the history of the alias: the job, and the verdict."""
    return Cause(
        f"a {context.job.kind} job", "; ".join(verdict.reasons), context.job.id, asdict(verdict)
    )
