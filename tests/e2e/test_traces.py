"""Spans of a real server and its workers of jobs, received over sockets."""

import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.helpers.jobs_helpers import TRAINING, settings_for
from tests.helpers.otlp import ReceivedSpan, Receiver
from tests.helpers.servers import ServerProcess, wait_for

from xylem_store.store import Store

pytest.importorskip("opentelemetry.sdk", reason="the packages of the extra otel are not installed")

PREDICT = "/v1/models/raw/predict"
ROW = {"indices": [1, 5], "values": [1.0, 0.5]}
SHORT = b'{"instances":[{"indices":[1,5],"values":[1,0.5]}]}'
SERVER, CONSUMER = 2, 5
KEY = "an-admin-key-of-the-tests"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A receiver that processes which are started now send to, soon."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    with Receiver() as made:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield made


def new_parent(flags: str = "01") -> tuple[str, str, dict[str, str]]:
    """The ids of a trace and of its span, and the header that says them."""
    trace_id, span_id = secrets.token_hex(16), secrets.token_hex(8)
    return trace_id, span_id, {"traceparent": f"00-{trace_id}-{span_id}-{flags}"}


def spans_of(receiver: Receiver, trace_id: str, n: int) -> dict[str, ReceivedSpan]:
    """The spans of a trace by name, once so many have come."""
    wait_for(lambda: len(receiver.of_trace(trace_id)) >= n)
    found = receiver.of_trace(trace_id)
    assert len({span.span_id for span in found}) == len(found) == n
    return {span.name: span for span in found}


def check_parts(found: dict[str, ReceivedSpan], whole: str, *parts: str) -> None:
    """Each part is beneath the whole, and within it, in this order."""
    assert set(found) == {whole, *parts}
    at = found[whole].began
    for name in parts:
        assert found[name].parent_id == found[whole].span_id
        assert at <= found[name].began <= found[name].ended <= found[whole].ended
        at = found[name].ended


def test_requests_of_a_server_are_spans(own_store: Store, receiver: Receiver) -> None:
    with ServerProcess(own_store.root, traces=True) as server:
        route = "POST /v1/models/{model}/predict"
        for i in range(4):  # the third goes the short way: its head has been seen before
            trace_id, parent_id, headers = new_parent()
            status, given, _ = server.exchange(
                "POST", PREDICT, SHORT, **headers, tracestate="a=1,b=2"
            )
            assert status == 200
            found = spans_of(receiver, trace_id, 4)
            check_parts(found, route, "read", "search", "write")
            whole = found[route]
            assert (whole.parent_id, whole.kind, whole.state) == (parent_id, SERVER, "a=1,b=2")
            assert (whole.is_failed, whole.resource["service.name"]) == (False, "xylem")
            assert whole.attributes == {
                "http.request.method": "POST",
                "http.route": "/v1/models/{model}/predict",
                "url.path": PREDICT,
                "http.response.status_code": 200,
                "xylem.request_id": given["x-request-id"],
                "xylem.model": "raw",
                "xylem.version": 2,
                "xylem.alias": "latest",
            }, i
            [line] = server.requests([given["x-request-id"]])
            assert line["trace_id"] == trace_id
        assert set() < exemplars_of(server) <= {span.trace_id for span in receiver.spans}

        trace_id, _, headers = new_parent()
        assert (
            server.ask("POST", PREDICT, {"instances": [ROW] * 9, "beam_width": 100}, **headers)[0]
            == 200
        )
        check_parts(
            spans_of(receiver, trace_id, 6), route, "read", "queue", "features", "search", "write"
        )

        trace_id, _, headers = new_parent()
        events = {"events": [{"event_id": "e1", "instance": ROW, "labels": []}]}
        assert server.ask("POST", "/v1/models/raw/feedback", events, **headers)[0] == 200
        check_parts(
            spans_of(receiver, trace_id, 3), "POST /v1/models/{model}/feedback", "read", "commit"
        )

        trace_id, _, headers = new_parent()
        for _ in range(3):
            assert server.ask("POST", PREDICT, {"instances": "none"}, **headers)[0] == 422
        wait_for(lambda: len(receiver.of_trace(trace_id)) == 3)
        refused = receiver.of_trace(trace_id)[0]
        assert (refused.attributes["xylem.code"], refused.is_failed) == ("bad-request", False)


def exemplars_of(server: ServerProcess) -> set[str]:
    page = server.ask("GET", "/metrics", accept="application/openmetrics-text")[1].decode()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    samples = families["xylem_request_seconds"].samples
    return {sample.exemplar.labels["trace_id"] for sample in samples if sample.exemplar is not None}


def test_what_is_not_sampled_is_not_sent(
    shared_store: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    with ServerProcess(shared_store, traces=True) as server:
        for i in range(4):
            trace_id, _, headers = new_parent("00")
            _, given, _ = server.exchange("POST", PREDICT, SHORT, **headers)
            assert server.requests([given["x-request-id"]])[0]["trace_id"] == trace_id, i
        for bad in ("00-0-0-01", f"ff{new_parent()[2]['traceparent'][2:]}", "", "\u00ff"):
            status, given, _ = server.exchange("POST", PREDICT, SHORT, traceparent=bad)
            assert status == 200
            assert "trace_id" not in server.requests([given["x-request-id"]])[0]
        twice = b"traceparent: %b\r\n" % new_parent()[2]["traceparent"].encode()
        head = (
            b"GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n" + twice + twice + b"\r\n"
        )
        assert server.raw(head).startswith(b"HTTP/1.1 200")
        assert server.ask("GET", "/readyz", **new_parent()[2])[0] == 200  # a probe has no span
        assert exemplars_of(server) == set()
        trace_id, _, headers = new_parent()
        assert server.ask("GET", "/v1/models", **headers)[0] == 200
        wait_for(lambda: bool(receiver.of_trace(trace_id)))
        assert {span.trace_id for span in receiver.spans} == {trace_id}


def test_nothing_is_sent_or_imported_that_was_not_asked_for(
    shared_store: Path, receiver: Receiver
) -> None:
    with ServerProcess(shared_store) as server:
        _, _, headers = new_parent()
        for _ in range(3):
            _, given, _ = server.exchange("POST", PREDICT, SHORT, **headers)
        assert "trace_id" not in server.requests([given["x-request-id"]])[0]
        maps = Path(f"/proc/{server.process.pid}/maps").read_text()
        assert "google/_upb" not in maps  # of protobuf, which nothing else needs
        assert server.terminate() == 0
    assert (receiver.n_requests, receiver.spans) == (0, [])


def test_a_receiver_that_does_not_answer_hurts_no_request(
    shared_store: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes connections, and never says a word: worse than one that refuses them."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv(
            "OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}"
        )
        monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "64")
        monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "16")
        with ServerProcess(shared_store, traces=True, drain_seconds=0.1) as server:
            for _ in range(60):  # 240 spans: more than wait
                assert server.ask("POST", PREDICT, {"instances": [ROW]})[0] == 200
            assert server.terminate() == 0
    assert receiver.n_requests == 0


def test_a_job_continues_the_trace_of_its_request(tmp_path: Path, receiver: Receiver) -> None:
    made = settings_for(tmp_path)
    settings = {
        "jobs": 1,
        "data_dir": made.data_dir,
        "admin_key": KEY,
        "job_nice": 0,
        "drain_seconds": 0.1,
    }
    with ServerProcess(made.store, traces=True, **settings) as server:
        trace_id, _, headers = new_parent()
        key = {"authorization": f"Bearer {KEY}"}
        status, answer = server.ask("POST", "/v1/admin/training-jobs", TRAINING, **headers, **key)
        assert status == 202, answer
        assert "traceparent" not in str(answer)
        wait_for(lambda: any(span.name == "job training" for span in receiver.of_trace(trace_id)))
        found = receiver.of_trace(trace_id)
        [request] = [span for span in found if span.kind == SERVER]
        [job] = [span for span in found if span.kind == CONSUMER]
        assert (job.parent_id, job.is_failed) == (request.span_id, False)
        told = [job.attributes[f"xylem.{name}"] for name in ("end", "kind", "model")]
        assert (told, job.resource["xylem.part"]) == (["succeeded", "training", "m"], "jobs")
        phases = [span for span in found if span.parent_id == job.span_id]
        assert phases[0].name == "start" and len({span.name for span in phases}) >= 3
        assert all(job.began <= span.began <= span.ended <= job.ended for span in phases)
        assert {event["trace_id"] for event in server.events("job_started")} == {trace_id}
        [worker] = server.events("job_worker_started")
        assert server.terminate() == 0
        wait_for(lambda: not Path(f"/proc/{worker['pid']}").exists())
