"""One version of a model, and its figures on validation rows, if it kept them."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError

from model_store.report import read_report
from model_store.store import Store
from service.serving.schemas.figures import ValidationFigures, VersionFigures
from service.serving.schemas.models import describe_version

_FIGURES: TypeAdapter[ValidationFigures] = TypeAdapter(ValidationFigures)


def describe_figures(store: Store, model: str, version: int) -> VersionFigures:
    """Return what is known of a version. Blocking. Of its arrays the report alone is read.

    Raises NotFound, Corrupt, StoreUnreadable.
    """
    opened = store.open(model, version, verify=False)
    summary = describe_version(opened.manifest)
    figures = _figures(read_report(opened.arrays))
    return VersionFigures(**dict(summary), model=opened.manifest.model, validation=figures)


def _figures(report: dict[str, Any]) -> ValidationFigures | None:
    """Return the figures of a report; None where there are none, or none that this release knows."""
    try:
        return _FIGURES.validate_python(report["validation"])
    except (KeyError, ValidationError):
        return None
