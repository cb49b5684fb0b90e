"""The shipped rules and dashboard in a real Prometheus, which scrapes a real server with two workers."""

import json
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from tests.contract.test_documents import families, name_of
from tests.servers import ServerProcess, wait_for

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES = DEPLOY / "alerts.yaml"
PREDICT = "/v1/models/raw/predict"
BODY = {"instances": [{"indices": [1, 5], "values": [1.0, 0.5]}]}


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


def rate_of(n: int) -> str:
    """A counter that rises by so much a minute, for half an hour."""
    return f"0+{n}x60"


OF_ONE_SERIES = {
    "XylemNotReady": ('xylem_ready{instance="a"}', "0x60", "1x60"),
    "XylemQueue": ('xylem_queue_depth{instance="a",queue="predictions"}', "33x60", "32x60"),
    "XylemVersionFailed": ('xylem_model_failed{instance="a",model="m",ref="7"}', "1x60", "1 _x60"),
    "XylemStoreFailed": ('xylem_store_failed{instance="a"}', "1x60", "0x60"),
    "XylemDatabaseFailed": ('xylem_database_failed{instance="a"}', "1x60", "0x60"),
    "XylemThresholdsOld": ('xylem_threshold_lag_seconds{instance="a"}', "61x60", "59x60"),
    "XylemWorkerSilent": ('xylem_worker_up{instance="a",worker="1"}', "0x60", "1x60"),
    "XylemStreamsStalled": ('xylem_streams_stalled{instance="a",stream="batch"}', "5x60", "4x60"),
}
"""Of each alert that has the labels of its one series: at which figures it fires, and at which not."""

PREDICTS = 'route="/v1/models/{model}/predict"'
OF_SEVERAL: dict[str, tuple[dict[str, str], dict[str, str], dict[str, str]]] = {
    "XylemErrors": (
        {
            'xylem_requests_total{route="r",status="500"}': rate_of(2),
            'xylem_requests_total{route="r",status="200"}': rate_of(100),
        },
        {
            'xylem_requests_total{route="r",status="500"}': rate_of(1),
            'xylem_requests_total{route="r",status="200"}': rate_of(1000),
        },
        {"route": "r"},
    ),
    "XylemOverloaded": (
        {'xylem_errors_total{instance="a",code="overloaded"}': rate_of(1)},
        {'xylem_errors_total{instance="a",code="bad-request"}': rate_of(1)},
        {"instance": "a"},
    ),
    "XylemSlow": (
        {
            f'xylem_request_seconds_bucket{{model="m",{PREDICTS},le="0.25"}}': rate_of(98),
            f'xylem_request_seconds_bucket{{model="m",{PREDICTS},le="+Inf"}}': rate_of(100),
            f'xylem_request_seconds_bucket{{model="m",{PREDICTS},le="0.5"}}': rate_of(100),
        },
        {
            f'xylem_request_seconds_bucket{{model="m",{PREDICTS},le="0.25"}}': rate_of(100),
            f'xylem_request_seconds_bucket{{model="m",{PREDICTS},le="+Inf"}}': rate_of(100),
        },
        {"model": "m"},
    ),
    "XylemVersionsDiffer": (
        {f'xylem_model_version{{instance="{i}",model="m",alias="l"}}': f"{i}x60" for i in (1, 2)},
        {f'xylem_model_version{{instance="{i}",model="m",alias="l"}}': "2x60" for i in (1, 2)},
        {"model": "m", "alias": "l"},
    ),
    "XylemCanaryFails": (
        {
            'xylem_requests_total{model="m",version="2",status="500"}': rate_of(2),
            'xylem_requests_total{model="m",version="2",status="200"}': rate_of(100),
            'xylem_alias_part{model="m",alias="l",version="2",role="canary"}': "0.1x60",
        },
        {  # the alias's own version
            'xylem_requests_total{model="m",version="1",status="500"}': rate_of(2),
            'xylem_requests_total{model="m",version="1",status="200"}': rate_of(100),
            'xylem_requests_total{model="m",version="2",status="500"}': rate_of(1),
            'xylem_requests_total{model="m",version="2",status="200"}': rate_of(1000),
            'xylem_alias_part{model="m",alias="l",version="1",role="stable"}': "0.9x60",
            'xylem_alias_part{model="m",alias="l",version="2",role="canary"}': "0.1x60",
        },
        {"model": "m", "version": "2"},
    ),
    "XylemShadowFails": (
        {
            'xylem_shadow_version_requests_total{model="m",version="2",result="failed"}': rate_of(2),
            'xylem_shadow_version_requests_total{model="m",version="2",result="answered"}': rate_of(100),
        },
        {
            'xylem_shadow_version_requests_total{model="m",version="2",result="dropped"}': rate_of(50),
            'xylem_shadow_version_requests_total{model="m",version="2",result="answered"}': rate_of(100),
        },
        {"model": "m", "version": "2"},
    ),
    "XylemJobsWait": (
        {
            **{f'xylem_jobs{{instance="{i}",kind="batch",state="queued"}}': "3x60" for i in "ab"},
            'xylem_jobs{instance="a",kind="batch",state="running"}': "0x60",
            'xylem_jobs{instance="a",kind="training",state="running"}': "0x60",
        },
        {
            'xylem_jobs{instance="a",kind="batch",state="queued"}': "3x60",
            'xylem_jobs{instance="a",kind="batch",state="running"}': "0x60",
            'xylem_jobs{instance="a",kind="training",state="running"}': "1x60",
        },
        {},
    ),
    "XylemJobOld": (
        {'xylem_job_oldest_seconds{instance="a",kind="batch",state="queued"}': "14401x60"},
        {
            'xylem_job_oldest_seconds{instance="a",kind="batch",state="queued"}': "14399x60",
            'xylem_job_oldest_seconds{instance="a",kind="training",state="running"}': "80000x60",
        },
        {"kind": "batch"},
    ),
    "XylemJobsFail": (
        {f'xylem_jobs_ended_total{{instance="{i}",kind="batch",state="failed"}}': "0x20 1x40" for i in "ab"},
        {
            'xylem_jobs_ended_total{instance="a",kind="batch",state="failed"}': "7x60",
            'xylem_jobs_ended_total{instance="a",kind="batch",state="succeeded"}': rate_of(1),
        },
        {"kind": "batch"},
    ),
}
"""Of each other alert: figures at which it fires, others at which it does not, and the labels that it has."""


def case_of(name: str) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    if name in OF_SEVERAL:
        return OF_SEVERAL[name]
    series, firing, silent = OF_ONE_SERIES[name]
    return {series: firing}, {series: silent}, dict(re.findall(r'(\w+)="(\w+)"', series))


def test_each_alert_fires_where_it_should_and_not_elsewhere(tmp_path: Path) -> None:
    assert sorted([*OF_ONE_SERIES, *OF_SEVERAL]) == sorted(alerts())
    tests = []
    for name in alerts():
        firing, silent, labels = case_of(name)
        block = RULES.read_text().partition(f"alert: {name}\n")[2].partition("- alert: ")[0]
        said = dict(re.findall(r'^ +(summary|action): "(.*)"$', block, re.MULTILINE))
        for label, value in labels.items():
            said = {key: text.replace(f"{{{{ $labels.{label} }}}}", value) for key, text in said.items()}
        [severity] = re.findall(r"severity: (\w+)", block)
        expected = [{"exp_labels": {**labels, "severity": severity}, "exp_annotations": said}]
        for series, alerted in ((firing, expected), (silent, [])):
            inputs = [{"series": each, "values": points} for each, points in series.items()]
            asked = {"eval_time": "25m", "alertname": name, "exp_alerts": alerted}
            tests.append({"interval": "30s", "input_series": inputs, "alert_rule_test": [asked]})
    cases = tmp_path / "cases.yaml"  # JSON is YAML
    cases.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "30s", "tests": tests}))
    promtool("test", "rules", cases)


class Prometheus:
    """A Prometheus on loopback that scrapes a server and knows the shipped rules."""

    def __init__(self, directory: Path, target: int) -> None:
        config = directory / "prometheus.yaml"
        config.write_text(
            "global: {scrape_interval: 500ms, evaluation_interval: 500ms}\n"
            f"rule_files: ['{RULES}']\n"
            "scrape_configs:\n- job_name: xylem\n"
            f"  static_configs: [{{targets: ['127.0.0.1:{target}']}}]\n"
        )
        promtool("check", "config", config)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        places = f"--config.file={config}", f"--storage.tsdb.path={directory / 'tsdb'}"
        options = f"--web.listen-address=127.0.0.1:{self.port}", "--enable-feature=exemplar-storage"
        with (directory / "prometheus.log").open("wb") as log:
            command = [program("prometheus"), *places, *options]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def ask(self, path: str, **query: str) -> Any:
        """The data that the query API answers with; None: nobody listens yet."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            assert error.code == 503, f"{query}: {error.read().decode()}"  # it has not begun
        except OSError:
            pass
        return None

    def values(self, query: str) -> list[float]:
        """The values that a query has now."""
        found = self.ask("query", query=query)
        return [] if found is None else [float(each["value"][1]) for each in found["result"]]


@pytest.fixture
def server(own_store: Any) -> Iterator[ServerProcess]:
    program("prometheus")
    with ServerProcess(own_store.root, workers=2, drain_seconds=0.1) as process:
        yield process


def test_prometheus_scrapes_it_and_every_panel_asks_for_what_is_there(
    server: ServerProcess, tmp_path: Path
) -> None:
    for _ in range(20):  # either worker answers, once its models are open
        wait_for(lambda: server.ask("POST", PREDICT, BODY)[0] == 200)
    with Prometheus(tmp_path, server.port) as prometheus:
        wait_for(lambda: prometheus.values("up") == [1])
        wait_for(lambda: prometheus.values("sum(xylem_worker_up)") == [2])
        route = "/v1/models/{model}/predict"
        wait_for(
            lambda: prometheus.values(f'sum(xylem_requests_total{{route="{route}",status="200"}})') == [20]
        )
        names = set(prometheus.ask("label/__name__/values"))
        ours = {name_of(family): family.type for family in families(tmp_path)}
        always = {f"{name}_count" if kind == "histogram" else name for name, kind in ours.items()}
        assert always - names <= {  # nothing has happened yet that they tell of
            *("xylem_errors_total", "xylem_model_failed", "xylem_threshold_epoch", "xylem_threshold_macro_f"),
            *("xylem_feedback_events_total", "xylem_feedback_rows", "xylem_feedback_rows_dropped_total"),
            *("xylem_jobs", "xylem_jobs_ended_total", "xylem_job_oldest_seconds", "xylem_job_seconds_total"),
            *("xylem_shadow_events", "xylem_shadow_macro_f", "xylem_shadow_version_seconds_count"),
            *(f"xylem_shadow_version_{what}_total" for what in ("agreed", "compared", "requests")),
        }
        page = server.ask("GET", "/metrics")[1]
        command = [program("promtool"), "check", "metrics"]
        done = subprocess.run(command, input=page, capture_output=True, check=False, timeout=60)
        assert done.returncode in (0, 3), done.stderr  # 3: what is told of is a matter of style
        assert [line for line in (done.stdout + done.stderr).splitlines() if line.startswith(b"xylem_")] == []
        board = json.loads((DEPLOY / "grafana" / "xylem.json").read_text())
        queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
        asked = [query.replace("$__rate_interval", "1m").replace("$model", ".*") for query in queries]
        assert sum(prometheus.values(query) != [] for query in asked) >= 12
        rules = prometheus.ask("rules")["groups"][0]["rules"]
        assert [rule["name"] for rule in rules] == alerts()
        wait_for(lambda: {rule["health"] for rule in prometheus.ask("rules")["groups"][0]["rules"]} == {"ok"})
        assert prometheus.ask("alerts")["alerts"] == []
