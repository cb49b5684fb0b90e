"""Whether traces are on: the setting, the standard's variables, and what is refused at the start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from service.base.errors import BadParameter
from service.traces import switch
from service.traces.switch import are_on, open_tracer
from tests.conftest import settings_of


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


def test_they_are_off_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    assert not are_on(settings_of(tmp_path))
    assert open_tracer(settings_of(tmp_path), "serve") is None


@pytest.mark.parametrize(("name", "value"), [("OTEL_SDK_DISABLED", "True"), ("OTEL_TRACES_EXPORTER", "none")])
def test_the_standard_can_turn_them_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert not are_on(settings_of(tmp_path, traces=True))


@pytest.mark.parametrize(
    ("name", "value"),
    [("OTEL_TRACES_EXPORTER", "console"), ("OTEL_TRACES_SAMPLER", "rarely"), ("OTEL_TRACES_SAMPLER", "")],
)
def test_what_is_not_understood_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="the packages of the extra otel are not installed")
    monkeypatch.setenv(name, value)
    settings = settings_of(tmp_path, traces=True)
    if not value:  # as if it were not set
        assert are_on(settings)
        return
    with pytest.raises(BadParameter, match=rf"{name}: expected .*, found '{value}'"):
        are_on(settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "-1"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
    ],
)
def test_an_exporter_that_cannot_be_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="the packages of the extra otel are not installed")
    monkeypatch.setenv(name, value)
    try:
        tracer = open_tracer(settings_of(tmp_path, traces=True), "serve")
    except BadParameter as error:
        assert str(error).startswith("OTEL_")
    else:  # the SDK takes its default instead, and says so
        assert name == "OTEL_EXPORTER_OTLP_TIMEOUT"
        assert tracer is not None
        tracer.close()


@pytest.mark.parametrize("missing", ["opentelemetry", "opentelemetry.sdk", "opentelemetry.exporter"])
def test_without_the_packages_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    def find(name: str) -> object:
        if name.startswith(f"{missing}."):
            raise ModuleNotFoundError(f"No module named {missing!r}")
        return None if name == missing else object()

    monkeypatch.setattr(switch, "find_spec", find)
    with pytest.raises(
        BadParameter, match="XYLEM_TRACES: expected the packages of the extra otel, found none"
    ):
        are_on(settings_of(tmp_path, traces=True))
