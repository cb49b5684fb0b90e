"""Whether traces are on: the setting, and the standard's variables that say no."""

from __future__ import annotations

import os

from service.errors import BadParameter
from service.settings import Settings
from service.traces.context import sampling_of
from service.traces.tracer import Tracer


def open_tracer(settings: Settings, part: str) -> Tracer | None:
    """Return what traces a part of the service, serve or jobs; None: traces are off.

    Raises BadParameter for a variable of OpenTelemetry that is not understood, and without its packages.
    """
    if not settings.traces or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    exporter = os.environ.get("OTEL_TRACES_EXPORTER") or "otlp"
    if exporter == "none":
        return None
    if exporter != "otlp":
        raise BadParameter(f"OTEL_TRACES_EXPORTER: expected otlp or none, found {exporter[:100]!r}")
    sampling = sampling_of(os.environ)
    try:
        # a quarter of a second, and many modules: only where they are wanted
        from service.traces.otel import OtlpSender
    except ModuleNotFoundError as error:
        raise BadParameter(
            f"XYLEM_TRACES: expected the packages of the extra otel, found no module {error.name}"
        ) from None
    return Tracer(sampling, OtlpSender(part, os.environ))
