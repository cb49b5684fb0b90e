"""`xylem thresholds`: read labelled files, and tune a version's thresholds on them."""

from xylem.base import OnProgress
from xylem.evaluation import Labelled
from xylem.thresholds import TuneRequest, TuningOutcome, tune_on
from xylem.workflows.labelled import read_labelled
from xylem_store import Model


def tune(
    model: Model, request: TuneRequest, on_progress: OnProgress, valid: Labelled | None = None
) -> list[TuningOutcome]:
    """Tune an opened version as `tune_on` does; nothing is stored. Raises BadInput.

    valid  the rows of the request's file if they are read already

    A row with a weight is there as often as it says.
    """
    if valid is None:
        valid = read_labelled(model, request.valid, on_progress, request.columns)
    test = (
        None
        if request.test is None
        else read_labelled(model, request.test, on_progress, request.columns).repeated()
    )
    return tune_on(model, request, on_progress, valid.repeated(), test)
