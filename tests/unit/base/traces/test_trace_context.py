"""Traces: whether they are on, and the trace that a request brings."""

import os
import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, strategies as st
from tests.conftest import settings_of

from xylem.base.errors import BadParameter
from xylem.base.traces import switch
from xylem.base.traces.switch import are_on, open_tracer
from xylem.base.traces.tracer import (
    Sampling,
    SpanShape,
    Tracer,
    is_sampled,
    parse_traceparent,
    sampling_of,
)

GOOD = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
HEX = "0123456789abcdef"


class Said(NamedTuple):
    """What a `traceparent` says."""

    trace_id: str
    span_id: str
    is_sampled: bool


def read_slowly(value: str) -> Said | None:
    """W3C Trace Context, 3.2.2, letter by letter."""
    parts = value.split("-", 4)
    if len(parts) < 4 or [len(part) for part in parts[:4]] != [2, 32, 16, 2]:
        return None
    if any(letter not in HEX for part in parts[:4] for letter in part):
        return None
    version, trace_id, span_id, flags = parts[:4]
    if version == "ff" or (version == "00" and len(parts) > 4):
        return None
    if set(trace_id) == {"0"} or set(span_id) == {"0"}:
        return None
    return Said(trace_id, span_id, int(flags, 16) % 2 == 1)


def some_hex(n: int) -> st.SearchStrategy[str]:
    some = st.text(HEX, min_size=n, max_size=n)
    return st.one_of(some, st.just("0" * n), st.text("0aFf-g ", max_size=n + 1))


VERSIONS = st.one_of(st.sampled_from(["00", "01", "fe", "ff"]), some_hex(2))
WRITTEN = st.tuples(VERSIONS, some_hex(32), some_hex(16), some_hex(2)).map("-".join)
ALMOST = st.tuples(WRITTEN, st.sampled_from(["", "-", "-more", "x", " ", "\n"])).map("".join)
VALUES = st.one_of(ALMOST, st.text(st.characters(max_codepoint=255), max_size=80))


@given(VALUES)
@example(GOOD.decode())
@example("cc" + GOOD.decode()[2:] + "-what-comes")
@example(GOOD.decode().upper())
@example(GOOD.decode() + "\n")
def test_a_traceparent_is_read_as_the_standard_says(value: str) -> None:
    found = parse_traceparent(value.encode("latin-1"))
    assert (None if found is None else read_slowly(found)) == read_slowly(value)
    if found is not None:
        assert (found[:3], len(found)) == ("00-", 55)
        assert is_sampled(found) == read_slowly(value).is_sampled
        assert parse_traceparent(found.encode()) == found


def tracing(sampling: Sampling, sent: list[Any] | None = None) -> Tracer:
    """Return what hands ended spans to `sent`, or to nobody."""
    return Tracer(sampling, [].append if sent is None else sent.append, lambda: None)


@given(VALUES)
def test_what_cannot_be_read_begins_a_new_trace(value: str) -> None:
    trace = tracing(sampling_of({})).begin(value.encode("latin-1"), b"vendor=1")
    parent = read_slowly(value)
    if parent is None:
        assert (trace.span_id != 0, trace.state, trace.parent) == (True, "", "")
        assert 0 < int(trace.id, 16) < 1 << 128
    elif not parent.is_sampled:
        assert trace.span_id == 0
    else:
        assert (trace.id, read_slowly(trace.parent), trace.state) == (
            parent.trace_id,
            parent,
            "vendor=1",
        )
        assert f"{trace.span_id:016x}" not in {parent.span_id, "0" * 16}
    told = read_slowly(trace.traceparent)
    assert (told.trace_id, told.is_sampled) == (trace.id, trace.span_id != 0)
    assert told.span_id == (
        f"{trace.span_id:016x}" if trace.span_id or parent is None else parent.span_id
    )


@pytest.mark.parametrize(
    ("name", "argument", "roots", "sampled", "unsampled"),
    [
        ("", "", 1.0, True, False),
        ("always_on", "", 1.0, True, True),
        ("always_off", "", 0.0, False, False),
        ("traceidratio", "0.5", 0.5, False, False),  # the lower half of this id is above a half
        ("traceidratio", "0.6", 0.6, True, True),
        ("parentbased_always_on", "", 1.0, True, False),
        ("parentbased_always_off", "", 0.0, True, False),
        ("parentbased_traceidratio", "0.01", 0.01, True, False),
    ],
)
def test_standard_samplers(
    name: str, argument: str, roots: float, sampled: bool, unsampled: bool
) -> None:
    sampling = sampling_of({"OTEL_TRACES_SAMPLER": name, "OTEL_TRACES_SAMPLER_ARG": argument})
    assert sampling.samples(GOOD.decode()) is sampled
    assert sampling.samples(f"{GOOD[:-2].decode()}00") is unsampled
    random.seed(11)
    tracer = tracing(sampling)
    traces = [trace for _ in range(20_000) if (trace := tracer.begin()) is not None]
    assert all(trace.span_id for trace in traces)
    found = [int(trace.id, 16) for trace in traces]
    assert abs(len(found) - 20_000 * roots) < 600
    assert len(set(found)) == len(found)
    assert all(trace_id % (1 << 64) < sampling.bound for trace_id in found)


NONE = [
    "sometimes 1",
    "traceidratio 2",
    "traceidratio -0.1",
    "traceidratio nan",
    "parentbased_traceidratio one",
]


@pytest.mark.parametrize("sampler", NONE)
def test_a_sampler_that_is_none_is_refused(sampler: str) -> None:
    name, argument = sampler.split()
    with pytest.raises(BadParameter, match=r"OTEL_TRACES_SAMPLER.*: expected .*, found"):
        sampling_of({"OTEL_TRACES_SAMPLER": name, "OTEL_TRACES_SAMPLER_ARG": argument})


def test_others_continue_a_parent_that_is_not_sampled_here() -> None:
    """Its flags are kept where they do not say to sample: bit 1 says that the trace's
    id is random.
    """
    for follows_parents, flags, kept in (
        (True, "02", "02"),
        (True, "00", "00"),
        (False, "01", "00"),
    ):
        trace = tracing(Sampling(0, follows_parents)).begin(GOOD[:-2] + flags.encode())
        assert trace.traceparent == f"{GOOD[:-2].decode()}{kept}"
    states = [tracing(Sampling(0, True)).begin(GOOD, b"a" * n).state for n in (512, 513)]
    assert list(map(len, states)) == [512, 0]  # a long one is left out


def test_a_span_that_is_not_sampled_is_not_handed_on() -> None:
    sent: list[Any] = []
    tracer = tracing(Sampling(0, True), sent)
    assert tracer.begin() is None
    shape = SpanShape("GET /x", "server", (("n", 1),), "overloaded")
    stretches = [(("read", "search"), (5, 7, 10))]
    tracer.end(tracer.begin(GOOD[:-1] + b"0"), shape, 0, stretches)
    assert sent == []
    tracer.end(tracer.begin(GOOD, b"a=1"), shape, 5, stretches)
    [ended] = sent
    told = ended.trace.id, ended.trace.parent, ended.trace.state
    assert told == (TRACE_ID, GOOD.decode(), "a=1")
    assert (ended.shape, ended.began, ended.stretches) == (shape, 5, stretches)
    assert ended.ended > ended.began


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("traces", "name", "value"),
    [
        (False, "OTEL_TRACES_EXPORTER", "otlp"),
        (True, "OTEL_TRACES_EXPORTER", "none"),
        (True, "OTEL_SDK_DISABLED", "True"),
    ],
)
def test_when_they_are_off(
    tmp_path: Path, monkeypatch: Any, traces: bool, name: str, value: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setenv(name, value)
    assert open_tracer(settings_of(tmp_path, traces=traces), "serve") is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_TRACES_EXPORTER", "console"),
        ("OTEL_TRACES_SAMPLER", "rarely"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "-1"),
    ],
)
def test_what_is_not_understood_is_refused(
    tmp_path: Path, monkeypatch: Any, name: str, value: str
) -> None:
    pytest.importorskip(
        "opentelemetry.sdk", reason="the packages of the extra otel are not installed"
    )
    monkeypatch.setenv(name, value)
    with pytest.raises(BadParameter, match=rf"^{name}: expected .*, found '{value}'"):
        open_tracer(settings_of(tmp_path, traces=True), "serve")


@pytest.mark.parametrize(
    ("name", "value"), [("OTEL_TRACES_SAMPLER", ""), ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")]
)
def test_what_is_as_if_it_were_not_set(
    tmp_path: Path, monkeypatch: Any, name: str, value: str
) -> None:
    pytest.importorskip(
        "opentelemetry.sdk", reason="the packages of the extra otel are not installed"
    )
    monkeypatch.setenv(name, value)
    tracer = open_tracer(settings_of(tmp_path, traces=True), "serve")
    assert tracer is not None
    tracer.close()


@pytest.mark.parametrize(
    ("of_traces", "of_all", "is_taken"),
    [
        ("http/protobuf", "grpc", True),
        ("grpc", "http/protobuf", False),
        ("", "http/protobuf", True),
        ("", "grpc", False),
    ],
)
def test_the_protocol_of_traces_has_priority(
    tmp_path: Path, monkeypatch: Any, of_traces: str, of_all: str, is_taken: bool
) -> None:
    pytest.importorskip(
        "opentelemetry.sdk", reason="the packages of the extra otel are not installed"
    )
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", of_traces)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", of_all)
    if is_taken:
        tracer = open_tracer(settings_of(tmp_path, traces=True), "serve")
        assert tracer is not None
        tracer.close()
    else:
        with pytest.raises(BadParameter, match=r"PROTOCOL: expected http/protobuf, found 'grpc'$"):
            open_tracer(settings_of(tmp_path, traces=True), "serve")


@pytest.mark.parametrize(
    "missing", ["opentelemetry", "opentelemetry.sdk", "opentelemetry.exporter"]
)
def test_without_the_packages_it_says_so(tmp_path: Path, monkeypatch: Any, missing: str) -> None:
    def find(name: str) -> object:
        if name.startswith(f"{missing}."):
            raise ModuleNotFoundError(f"No module named {missing!r}")
        return None if name == missing else object()

    monkeypatch.setattr(switch, "find_spec", find)
    with pytest.raises(BadParameter, match="XYLEM_TRACES needs OpenTelemetry: pip install"):
        are_on(settings_of(tmp_path, traces=True))
