"""`xylem extend` of a combined version: its members are extended, and nothing else is fitted."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from xylem.base import BadParameter, Crew, OnProgress, one_step
from xylem.engine import members_of
from xylem.vocabulary import with_members
from xylem.workflows.evaluate import valid_figures
from xylem.workflows.going_on import (
    check_base,
    going_on,
    keeps_rows,
    labels_to_learn,
    origin_of,
)
from xylem.workflows.labelled import read_labelled
from xylem.workflows.request import TrainRequest
from xylem.workflows.train import (
    FINISH,
    grow_trees,
    peak_memory_bytes,
    read_rows_with_new_labels,
)
from xylem.workflows.training_work import TrainingWork, TrainReport
from xylem_store import Model, Store, model_of, origin_arrays


def extend_members(
    store: Store, name: str, base: Model, request: TrainRequest, on_progress: OnProgress
) -> TrainReport:
    """Publish a combined version whose members have learnt labels that they did not have.

    Ranker, names and calibration stay. A member that cannot learn them stays as it is, and a
    warning says why. Raises BadParameter if all members stay, and BadInput.
    """
    start = time.perf_counter()
    members = members_of(base)
    first_rows = None
    grown: dict[str, int] = {}
    warnings: list[str] = []
    n_extended = 0
    store.prepare()
    with request.crew() as crew:
        for number, member in enumerate(members):
            try:
                work = _extended(member, request, crew, on_progress)
            except BadParameter as error:
                warnings.append(f"member {member.manifest.full_name} stays as it is: {error}")
                continue
            n_extended += 1
            members[number] = replace(
                model_of(work.draft),
                manifest=replace(  # the name by which answers explain a member stays
                    work.trial.manifest,
                    model=member.manifest.model,
                    version=member.manifest.version,
                ),
            )
            warnings += work.warnings
            grown = {key: grown.get(key, 0) + value for key, value in (work.grown or {}).items()}
            if number == 0 and work.sample is not None:
                first_rows = work.sample.rows, work.sample.labels
    if not n_extended:
        raise BadParameter(
            "extend: expected a member that can learn new labels, found none: "
            + "; ".join(warnings)
        )
    draft = with_members(
        base,
        members,
        first_rows,
        {"extended": grown, **({"warnings": warnings} if warnings else {})},
    )
    seconds = time.perf_counter() - start
    metrics: Mapping[str, float] = {}
    if request.valid is not None:
        trial = model_of(draft)
        metrics = valid_figures(
            trial,
            read_labelled(trial, request.valid, on_progress, request.columns),
            request.threads,
            on_progress,
        ).metrics
    draft = replace(
        draft,
        metrics=metrics,
        extra={**draft.extra, **origin_arrays(origin_of(base, request), request.made_for)},
        files=store.files_of(base, draft.extra),
    )
    with one_step(on_progress, "publish"):
        published = store.publish(name, draft, latest=request.latest)
    return TrainReport(
        model=name,
        version=published.version,
        trainer=published.trainer.name,
        train_seconds=seconds,
        peak_memory_bytes=peak_memory_bytes(),
        model_bytes=published.model_bytes,
        metrics=published.metrics,
        warnings=warnings or None,
        grown=grown,
    )


def _extended(
    member: Model, request: TrainRequest, crew: Crew, on_progress: OnProgress
) -> TrainingWork:
    """Return the work of extending a member. Raises BadParameter if it stays, and BadInput."""
    changes: dict[str, Any] = {
        "trainer": member.manifest.trainer.name,
        "seed": member.manifest.seed,
        "rows": () if keeps_rows(member) else request.rows,
        "valid": None,
        "made_for": None,
    }
    request = request.model_copy(update=changes)
    check_base(member, request, "extend")
    continuation = going_on(member, request, request.chosen())
    request = continuation.request
    if not labels_to_learn(member, request.read(on_progress)):
        raise BadParameter(f"it has all labels of {request.data.name}")
    work = TrainingWork(
        request=request,
        chosen=continuation.chosen,
        crew=crew,
        on_progress=on_progress,
        origin=origin_of(member, request),
        continuation=continuation,
    )
    for step in (read_rows_with_new_labels, grow_trees, *FINISH):
        work = step(work)
    return work
