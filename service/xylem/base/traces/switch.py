"""Whether traces are on: the setting, and the standard's variables that say no."""

import os
from importlib.util import find_spec

from xylem.base.errors import BadParameter
from xylem.base.settings import Settings
from xylem.base.traces.tracer import Tracer, sampling_of


def are_on(settings: Settings) -> bool:
    """Return whether traces are sent.

    Raises BadParameter for a variable of OpenTelemetry that is not understood, and without its
    packages.
    """
    if not settings.traces or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = os.environ.get("OTEL_TRACES_EXPORTER") or "otlp"
    if exporter == "none":
        return False
    if exporter != "otlp":
        raise BadParameter(f"OTEL_TRACES_EXPORTER: expected otlp or none, found {exporter[:100]!r}")
    sampling_of(os.environ)
    try:
        specs = find_spec("opentelemetry.sdk"), find_spec("opentelemetry.exporter.otlp.proto.http")
    except ModuleNotFoundError:  # nor is the package that one of them would be in
        specs = None, None
    if None in specs:
        raise BadParameter("XYLEM_TRACES: expected the packages of the extra otel, found none")
    return True


def open_tracer(settings: Settings, part: str) -> Tracer | None:
    """Return what traces a part of the service, serve or jobs; None:
    traces are off. Raises as `are_on`.
    """
    if not are_on(settings):
        return None
    # a quarter of a second, and many modules: only where they are wanted
    from xylem.base.traces.otel import OtlpSender

    sender = OtlpSender(part, os.environ)
    return Tracer(sampling_of(os.environ), sender.send, sender.close)
