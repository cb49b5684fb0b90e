"""Figures of a real server, and the shipped rules and dashboard in
a real Prometheus which scrapes it.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_plain
from tests.contract.test_documents import families, name_of
from tests.helpers.balanced import running
from tests.helpers.replicas import reserved_ports
from tests.helpers.servers import ServerProcess, wait_for

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES = DEPLOY / "alerts.yaml"
PREDICT = "/v1/models/raw/predict"
ROUTE = "/v1/models/{model}/predict"
ROW = {"indices": [1, 5], "values": [1.0, 0.5]}
LINE = json.dumps(ROW).encode() + b"\n"
BODY = {"instances": [ROW]}


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed (Debian's package prometheus)")
    return found


def promtool(*arguments: str | Path) -> str:
    """What `promtool` prints, which must say that all is well."""
    command = [program("promtool"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def alerts() -> list[str]:
    return re.findall(r"^ +- alert: (\w+)$", RULES.read_text(), re.MULTILINE)


def test_the_rules_are_rules() -> None:
    assert f"{len(alerts())} rules found" in promtool("check", "rules", RULES)


CASES = """
XylemNotReady{instance="a"}
  fires   xylem_ready{instance="a"} 0x60
  silent  xylem_ready{instance="a"} 1x60
XylemErrors{route="r"}
  fires   xylem_requests_total{route="r",status="500"} 0+2x60
  fires   xylem_requests_total{route="r",status="200"} 0+100x60
  silent  xylem_requests_total{route="r",status="500"} 0+1x60
  silent  xylem_requests_total{route="r",status="200"} 0+1000x60
XylemOverloaded{instance="a"}
  fires   xylem_errors_total{instance="a",code="overloaded"} 0+1x60
  silent  xylem_errors_total{instance="a",code="bad-request"} 0+1x60
XylemKeysAtTheirLimit{instance="a"}
  fires   xylem_errors_total{instance="a",code="too-many-requests"} 0+1x60
  silent  xylem_errors_total{instance="a",code="overloaded"} 0+1x60
XylemSlowClients{instance="a"}
  fires   xylem_connections_aborted_total{instance="a"} 0+31x60
  silent  xylem_connections_aborted_total{instance="a"} 0+30x60
XylemSlow{model="m"}
  fires   xylem_request_seconds_bucket{model="m",route="/v1/models/{model}/predict",le="0.25"} 0+98x60
  fires   xylem_request_seconds_bucket{model="m",route="/v1/models/{model}/predict",le="0.5"} 0+100x60
  silent  xylem_request_seconds_bucket{model="m",route="/v1/models/{model}/predict",le="0.25"} 0+100x60
  always  xylem_request_seconds_bucket{model="m",route="/v1/models/{model}/predict",le="+Inf"} 0+100x60
XylemQueue{instance="a",queue="predictions"}
  fires   xylem_queue_depth{instance="a",queue="predictions"} 33x60
  silent  xylem_queue_depth{instance="a",queue="predictions"} 32x60
XylemVersionFailed{instance="a",model="m",ref="7"}
  fires   xylem_model_failed{instance="a",model="m",ref="7"} 1x60
  silent  xylem_model_failed{instance="a",model="m",ref="7"} 1 _x60
XylemModelsReopened{instance="a"}
  fires   xylem_versions_opened_total{instance="a"} 0+400x60
  silent  xylem_versions_opened_total{instance="a"} 0+100x60
XylemVersionsDiffer{model="m",alias="l"}
  fires   xylem_model_version{instance="1",model="m",alias="l"} 1x60
  silent  xylem_model_version{instance="1",model="m",alias="l"} 2x60
  always  xylem_model_version{instance="2",model="m",alias="l"} 2x60
XylemCanaryFails{model="m",version="2"}
  fires   xylem_requests_total{model="m",version="2",status="500"} 0+2x60
  fires   xylem_requests_total{model="m",version="2",status="200"} 0+100x60
  silent  xylem_requests_total{model="m",version="1",status="500"} 0+2x60
  silent  xylem_requests_total{model="m",version="1",status="200"} 0+100x60
  silent  xylem_requests_total{model="m",version="2",status="500"} 0+1x60
  silent  xylem_requests_total{model="m",version="2",status="200"} 0+1000x60
  silent  xylem_alias_part{model="m",alias="l",version="1",role="stable"} 0.9x60
  always  xylem_alias_part{model="m",alias="l",version="2",role="canary"} 0.1x60
XylemShadowFails{model="m",version="2"}
  fires   xylem_shadow_version_requests_total{model="m",version="2",result="failed"} 0+2x60
  silent  xylem_shadow_version_requests_total{model="m",version="2",result="dropped"} 0+50x60
  always  xylem_shadow_version_requests_total{model="m",version="2",result="answered"} 0+100x60
XylemStoreFailed{instance="a"}
  fires   xylem_store_failed{instance="a"} 1x60
  silent  xylem_store_failed{instance="a"} 0x60
XylemDatabaseFailed{instance="a"}
  fires   xylem_database_failed{instance="a"} 1x60
  silent  xylem_database_failed{instance="a"} 0x60
XylemThresholdsForeign{model="m",version="1"}
  fires   xylem_thresholds_foreign{instance="a",model="m",version="1"} 1x60
  silent  xylem_thresholds_foreign{instance="a",model="m",version="1"} 0x60
XylemFollowerOld{instance="a",follower="store"}
  fires   xylem_follower_age_seconds{instance="a",follower="store"} 301x60
  silent  xylem_follower_age_seconds{instance="a",follower="store"} 299x60
XylemLogDropped{instance="a"}
  fires   xylem_log_lines_dropped_total{instance="a"} 0+1x60
  silent  xylem_log_lines_dropped_total{instance="a"} 7x60
XylemThresholdsOld{instance="a"}
  fires   xylem_threshold_lag_seconds{instance="a"} 61x60
  silent  xylem_threshold_lag_seconds{instance="a"} 59x60
XylemWorkerSilent{instance="a",worker="1"}
  fires   xylem_worker_up{instance="a",worker="1"} 0x60
  silent  xylem_worker_up{instance="a",worker="1"} 1x60
XylemStreamsStalled{instance="a",stream="batch"}
  fires   xylem_streams_stalled{instance="a",stream="batch"} 5x60
  silent  xylem_streams_stalled{instance="a",stream="batch"} 4x60
XylemJobsWait{}
  fires   xylem_jobs{instance="b",kind="batch",state="queued"} 3x60
  fires   xylem_jobs{instance="a",kind="training",state="running"} 0x60
  silent  xylem_jobs{instance="a",kind="training",state="running"} 1x60
  always  xylem_jobs{instance="a",kind="batch",state="queued"} 3x60
  always  xylem_jobs{instance="a",kind="batch",state="running"} 0x60
XylemJobOld{kind="batch"}
  fires   xylem_job_oldest_seconds{instance="a",kind="batch",state="queued"} 14401x60
  silent  xylem_job_oldest_seconds{instance="a",kind="batch",state="queued"} 14399x60
  silent  xylem_job_oldest_seconds{instance="a",kind="training",state="running"} 80000x60
XylemJobsFail{kind="batch"}
  fires   xylem_jobs_ended_total{instance="a",kind="batch",state="failed"} 0x20 1x40
  fires   xylem_jobs_ended_total{instance="b",kind="batch",state="failed"} 0x20 1x40
  silent  xylem_jobs_ended_total{instance="a",kind="batch",state="failed"} 7x60
  silent  xylem_jobs_ended_total{instance="a",kind="batch",state="succeeded"} 0+1x60
"""  # noqa: E501
"""Of each alert: its labels, series of which it fires, of which it does not, of both.
0+2x60 rises by 2.
"""


def test_each_alert_fires_where_it_should_and_not_elsewhere(tmp_path: Path) -> None:
    cases = re.findall(r"^(\w+)\{(.*)\}\n((?:  .*\n)+)", CASES, re.MULTILINE)
    assert [name for name, *_ in cases] == alerts()
    tests = []
    for name, told, lines in cases:
        labels = dict(re.findall(r'(\w+)="(\w+)"', told))
        block = RULES.read_text().partition(f"alert: {name}\n")[2].partition("- alert: ")[0]
        said = dict(re.findall(r'^ +(summary|action): "(.*)"$', block, re.MULTILINE))
        for label, value in labels.items():
            said = {
                key: text.replace(f"{{{{ $labels.{label} }}}}", value) for key, text in said.items()
            }
        [severity] = re.findall(r"severity: (\w+)", block)
        expected = [{"exp_labels": {**labels, "severity": severity}, "exp_annotations": said}]
        for what, alerted in (("fires", expected), ("silent", [])):
            series = re.findall(rf"^  (?:{what}|always) +(\S+) (.*)$", lines, re.MULTILINE)
            inputs = [{"series": each, "values": figures} for each, figures in series]
            asked = {"eval_time": "25m", "alertname": name, "exp_alerts": alerted}
            tests.append({"interval": "30s", "input_series": inputs, "alert_rule_test": [asked]})
    cases = tmp_path / "cases.yaml"  # JSON is YAML
    cases.write_text(
        json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "30s", "tests": tests})
    )
    promtool("test", "rules", cases)


class Prometheus(NamedTuple):
    """The query API of a Prometheus on a port of loopback."""

    port: int

    def ask(self, path: str, **query: str) -> Any:
        """The data that it answers with; None: it has not begun."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            assert error.code == 503, f"{query}: {error.read().decode()}"
            return None

    def values(self, query: str) -> list[float]:
        """The values that a query has now."""
        found = self.ask("query", query=query)
        return [] if found is None else [float(each["value"][1]) for each in found["result"]]


@contextmanager
def running_prometheus(directory: Path, target: int) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes a server and knows the shipped rules."""
    config = directory / "prometheus.yaml"
    config.write_text(
        "global: {scrape_interval: 500ms, evaluation_interval: 500ms}\n"
        f"rule_files: ['{RULES}']\n"
        "scrape_configs:\n- job_name: xylem\n"
        f"  static_configs: [{{targets: ['127.0.0.1:{target}']}}]\n"
    )
    promtool("check", "config", config)
    with reserved_ports(1) as [port]:
        places = f"--config.file={config}", f"--storage.tsdb.path={directory / 'tsdb'}"
        options = f"--web.listen-address=127.0.0.1:{port}", "--enable-feature=exemplar-storage"
        with running([program("prometheus"), *places, *options], port):
            yield Prometheus(port)


def test_prometheus_scrapes_it_and_panels_ask_for_what_is_there(
    own_store: Any, tmp_path: Path
) -> None:
    program("prometheus")
    with (
        ServerProcess(own_store.root, workers=2, drain_seconds=0.1) as server,
        running_prometheus(tmp_path, server.port) as prometheus,
    ):
        for _ in range(20):  # either worker answers, once its models are open
            wait_for(lambda: server.ask("POST", PREDICT, BODY)[0] == 200)
        wait_for(lambda: prometheus.values("up") == [1])
        wait_for(lambda: prometheus.values("sum(xylem_worker_up)") == [2])
        answered = f'sum(xylem_requests_total{{route="{ROUTE}",status="200"}})'
        wait_for(lambda: prometheus.values(answered) == [20])
        names = set(prometheus.ask("label/__name__/values"))
        ours = {name_of(family): family.type for family in families(tmp_path)}
        always = {f"{name}_count" if kind == "histogram" else name for name, kind in ours.items()}
        assert always - names <= {  # nothing has happened yet that they tell of
            *(
                "xylem_errors_total",
                "xylem_model_failed",
                "xylem_threshold_epoch",
                "xylem_threshold_macro_f",
            ),
            *(
                "xylem_feedback_events_total",
                "xylem_feedback_rows",
                "xylem_feedback_rows_dropped_total",
            ),
            *(
                "xylem_jobs",
                "xylem_jobs_ended_total",
                "xylem_job_oldest_seconds",
                "xylem_job_seconds_total",
            ),
            *(f"xylem_key_{what}_total" for what in ("characters", "requests", "rows")),
            "xylem_key_search_seconds_total",  # of keys, if the setting asks for them
            *("xylem_shadow_events", "xylem_shadow_macro_f", "xylem_shadow_version_seconds_count"),
            *(f"xylem_shadow_version_{what}_total" for what in ("agreed", "compared", "requests")),
        }
        page = server.ask("GET", "/metrics")[1]
        command = [program("promtool"), "check", "metrics"]
        done = subprocess.run(command, input=page, capture_output=True, check=False, timeout=60)
        assert done.returncode in (0, 3), done.stderr  # 3: what is told of is a matter of style
        assert [
            line for line in (done.stdout + done.stderr).splitlines() if line.startswith(b"xylem_")
        ] == []
        board = json.loads((DEPLOY / "grafana" / "xylem.json").read_text())
        queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
        asked = [
            query.replace("$__rate_interval", "1m").replace("$model", ".*") for query in queries
        ]
        assert sum(prometheus.values(query) != [] for query in asked) >= 12
        rules = prometheus.ask("rules")["groups"][0]["rules"]
        assert [rule["name"] for rule in rules] == alerts()
        wait_for(
            lambda: (
                {rule["health"] for rule in prometheus.ask("rules")["groups"][0]["rules"]} == {"ok"}
            )
        )
        assert prometheus.ask("alerts")["alerts"] == []


# --- scrapes of a real server: all of its workers, stages, streams, in both formats


OPENMETRICS = {"accept": "application/openmetrics-text;version=1.0.0"}


def figures(server: ServerProcess, **headers: str) -> dict[str, Any]:
    """The figures of a scrape, by name."""
    status, page = server.ask("GET", "/metrics", **headers)
    assert status == 200
    parse: Any = parse_openmetrics if headers else parse_plain
    families = list(parse(page.decode()))
    assert len({family.name for family in families}) == len(families)
    return {family.name: family for family in families}


def sum_of(server: ServerProcess, name: str, **labels: str) -> float:
    """The sum of a figure's samples with these labels."""
    found = [
        sample
        for family in figures(server).values()
        for sample in family.samples
        if sample.name == name
    ]
    return sum(sample.value for sample in found if labels.items() <= sample.labels.items())


def test_a_scrape_has_the_figures_of_all_workers(shared_store: Path) -> None:
    with ServerProcess(shared_store, workers=2, drain_seconds=0.1) as server:
        wait_for(lambda: len(server.events("models_opened")) == 2)
        for _ in range(60):
            assert server.ask("POST", PREDICT, BODY)[0] == 200
        wait_for(lambda: sum_of(server, "xylem_requests_total", route=ROUTE, status="200") == 60)
        for headers in ({}, OPENMETRICS):
            found = figures(server, **headers)
            samples = [sample for family in found.values() for sample in family.samples]
            assert {sample.labels["worker"] for sample in samples} == {"0", "1"}
            assert [sample.value for sample in found["xylem_worker_up"].samples] == [1, 1]
            series = Counter((sample.name, *sorted(sample.labels.items())) for sample in samples)
            assert set(series.values()) == {1}
        pid = server.events("worker_started")[1]["pid"]
        os.kill(pid, signal.SIGSTOP)  # it listens, and does not answer
        try:
            found = next(page for _ in range(100) if (page := figures_or_none(server)) is not None)
        finally:
            os.kill(pid, signal.SIGCONT)
        up = {sample.labels["worker"]: sample.value for sample in found["xylem_worker_up"].samples}
        assert up == {"0": 1, "1": 0}
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: len(server.events("models_opened")) == 3)
        wait_for(lambda: sum_of(server, "xylem_worker_up") == 2)
        assert server.terminate() == 0
        pids = [event["pid"] for event in server.events("worker_started")]
        assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []


def figures_or_none(server: ServerProcess) -> dict[str, Any] | None:
    """The figures of a scrape; None where it met the worker that does not answer."""
    request = b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    try:
        received = server.raw(request, seconds=3)
    except TimeoutError:
        return None
    body = received.partition(b"\r\n\r\n")[2]
    return {family.name: family for family in parse_plain(body.decode())}


def counts(server: ServerProcess, *stages: str) -> list[float]:
    return [sum_of(server, "xylem_stage_seconds_count", stage=stage) for stage in stages]


def begin_batch(connection: socket.socket, query: str = "") -> None:
    lines = [
        f"POST /v1/models/raw/batch{query} HTTP/1.1",
        "host: x",
        "content-type: application/x-ndjson",
    ]
    connection.sendall("\r\n".join([*lines, "transfer-encoding: chunked", "", ""]).encode())


def test_stages_and_streams_are_counted(own_store: Any) -> None:
    with ServerProcess(own_store.root, body_seconds_max=1) as server:
        for body in (BODY, BODY, {"instances": [ROW], "explain": True}):
            assert server.ask("POST", PREDICT, body)[0] == 200
        assert counts(server, "read", "search", "write", "features", "queue") == [3, 3, 3, 1, 0]
        wide = {"instances": [ROW] * 9, "beam_width": 100}
        assert server.ask("POST", PREDICT, wide)[0] == 200
        assert counts(server, "search", "queue") == [4, 1]
        event = {"event_id": "e1", "instance": ROW, "labels": []}
        status, answer = server.ask("POST", "/v1/models/raw/feedback", {"events": [event]})
        assert (status, answer["results"][0]["result"]) == (200, "applied"), answer
        assert counts(server, "commit") == [1]

        def lines() -> Iterator[bytes]:
            for _ in range(3):
                yield LINE
                wait_for(lambda: sum_of(server, "xylem_streams_open", stream="batch") == 1)

        assert len(list(server.stream("/v1/models/raw/batch", lines()))) == 3
        assert counts(server, "search")[0] > 4
        wait_for(lambda: sum_of(server, "xylem_streams_open") == 0)
        # a client that sends nothing more is cut off
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            begin_batch(connection)
            wait_for(lambda: sum_of(server, "xylem_streams_cut_total", stream="batch") == 1)
        assert sum_of(server, "xylem_stream_blocks") == 0


def test_a_client_that_does_not_read_stalls_its_stream(shared_store: Path) -> None:
    with ServerProcess(shared_store, batch_spool_mib=0) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=0.2) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            begin_batch(connection, "?top_r=10")
            chunk = b"%x\r\n%b\r\n" % (len(LINE) * 200, LINE * 200)
            wait_for(lambda: is_full(connection, chunk))
            wait_for(lambda: sum_of(server, "xylem_streams_stalled", stream="batch") == 1)
            assert sum_of(server, "xylem_stream_blocks", stream="batch") >= 1
        wait_for(lambda: sum_of(server, "xylem_streams_stalled") == 0)


def is_full(connection: socket.socket, chunk: bytes) -> bool:
    """Send until the server takes no more; return whether it does not."""
    try:
        for _ in range(50):
            connection.sendall(chunk)
    except TimeoutError:
        return True
    return False
