"""The switch of traces: the setting, and the standard variables that turn them off."""

import os
from contextlib import suppress
from importlib.util import find_spec

from xylem.base.errors import BadParameter
from xylem.base.settings import Settings
from xylem.base.traces.tracer import Tracer, sampling_of


def are_on(settings: Settings) -> bool:
    """Return whether traces are sent.

    Raises BadParameter for a variable of OpenTelemetry that is not understood, and if its packages
    are missing.
    """
    if not settings.traces or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = os.environ.get("OTEL_TRACES_EXPORTER") or "otlp"
    if exporter == "none":
        return False
    if exporter != "otlp":
        raise BadParameter(f"OTEL_TRACES_EXPORTER: expected otlp or none, found {exporter[:100]!r}")
    sampling_of(os.environ)
    with suppress(ModuleNotFoundError):  # a parent package is missing too
        if all(map(find_spec, ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"))):
            return True
    raise BadParameter("XYLEM_TRACES needs OpenTelemetry: pip install 'xylem-serve[otel]'")


def open_tracer(settings: Settings, part: str) -> Tracer | None:
    """Return the tracer of a part of the service, "serve" or "jobs"; None if traces are off.

    Raises BadParameter, as `are_on`.
    """
    if not are_on(settings):
        return None
    # imported only if traces are on: it takes a quarter of a second, and many modules
    from xylem.base.traces.otel import OtlpSender

    sender = OtlpSender(part, os.environ)
    return Tracer(sampling_of(os.environ), sender.send, sender.close)
