"""What a method of tuning found, and what a report says of it."""

from typing import Any, NamedTuple

from service.evaluation import FMeasures
from service.thresholds.store.codec import Method, Tuned


class TuningOutcome(NamedTuple):
    """What a method found, and how good it is on the rows it was found on and on others.

    kappa     that was chosen; None where it was given
    rejected  macro-F on the validation rows of the method that was asked for, where one threshold for all
              labels is better there and was taken; else None
    """

    tuned: Tuned
    validation: FMeasures
    test: FMeasures | None
    kappa: float | None = None
    rejected: tuple[Method, float] | None = None


def facts_of(outcome: TuningOutcome) -> dict[str, Any]:
    """Return what a report says of an outcome, as JSON values."""
    tuned = outcome.tuned
    facts: dict[str, Any] = {
        "method": tuned.method,
        **_named("validation", outcome.validation),
        **({} if outcome.test is None else _named("test", outcome.test)),
        "empty_label_convention": tuned.convention,
        "labels": len(tuned.thresholds),
        "start": [tuned.start.a, tuned.start.b],
        "power": tuned.start.power,
        "scale": tuned.start.scale,
        **({} if outcome.kappa is None else {"kappa": outcome.kappa}),
    }
    if outcome.rejected is not None:
        method, macro_f = outcome.rejected
        kept = "one threshold for all labels, which is kept"
        note = f"{method} has less macro-F on the validation rows than {kept}"
        facts |= {"instead_of": method, "instead_of_macro_f": macro_f, "note": note}
    return facts


def _named(part: str, f: FMeasures) -> dict[str, float]:
    return {f"{part}_macro_f": f.macro_f, f"{part}_micro_f": f.micro_f, f"{part}_instance_f": f.instance_f}
