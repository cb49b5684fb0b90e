"""What the files of deploy/ promise: pinned images, health checks, no
password; all that they name exists.
"""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from sqlalchemy import make_url
from tests.contract.test_documents import COMMANDS, families, name_of, table_rows

from xylem.api.app import create_app
from xylem.base.access.key_text import open_scopes
from xylem.base.settings import ELSEWHERE, Limits, Settings, read_settings, variables

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = (ROOT / "Dockerfile").read_text()
TEXT = (DEPLOY / "compose.yaml").read_text()
COMPOSE = yaml.safe_load(TEXT)
SERVICES = COMPOSE["services"]
REPLICA, ADMIN, POSTGRES = (SERVICES[name] for name in ("xylem-1", "xylem-admin", "postgres"))


def test_images_are_pinned() -> None:
    images = {service["image"] for service in SERVICES.values()}
    assert {image.partition(":")[0] for image in images} == {"nginx", "postgres", "xylem"}
    assert all(re.fullmatch(r"[a-z]+:\d+\.\d+(\.\d+)?", image) for image in images - {"xylem"})


def test_the_database_keeps_its_files_and_says_when_it_is_ready() -> None:
    assert POSTGRES["volumes"] == ["database:/var/lib/postgresql/data"]
    assert COMPOSE["volumes"].keys() == {"database", "data"}
    assert POSTGRES["healthcheck"]["test"][1:3] == ["pg_isready", "--host=127.0.0.1"]
    assert "ports" not in POSTGRES


def test_the_password_is_in_a_file_that_git_ignores() -> None:
    url = make_url(REPLICA["environment"]["XYLEM_DATABASE_URL"])
    assert url.drivername == "postgresql+psycopg"
    assert (url.username, url.password, url.host, url.database) == (
        "xylem",
        None,
        "postgres",
        "xylem",
    )
    assert POSTGRES["environment"] == {"POSTGRES_USER": url.username, "POSTGRES_DB": url.database}
    assert "PASSWORD:" not in TEXT
    assert {service.get("env_file") for service in (REPLICA, ADMIN, POSTGRES)} == {"postgres.env"}
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    assert (
        subprocess.run(["git", "check-ignore", "-q", "deploy/postgres.env"], cwd=ROOT).returncode
        == 0
    )
    assert not subprocess.check_output(["git", "ls-files", "deploy/postgres.env"], cwd=ROOT)


def test_replicas_that_only_read_predict_without_the_database() -> None:
    assert SERVICES["xylem-2"] == REPLICA
    assert REPLICA["depends_on"] == ["postgres"], "it waits for no health"
    store, temporary = REPLICA["volumes"]
    assert (store["target"], store["read_only"], temporary) == ("/store", True, "/tmp")
    told = REPLICA["environment"]
    assert (told["XYLEM_JOBS"], told["XYLEM_OPEN_SCOPES"]) == ("0", "predict,metrics")
    assert read_settings(open_scopes=told["XYLEM_OPEN_SCOPES"]).open_scopes == (
        "predict",
        "metrics",
    )
    assert "ports" not in REPLICA


def test_the_server_that_trains_is_for_this_machine_alone() -> None:
    assert ADMIN["environment"] == {
        "XYLEM_DATABASE_URL": REPLICA["environment"]["XYLEM_DATABASE_URL"],
        "XYLEM_JOBS": "1",
        "XYLEM_DATA_DIR": "/data",
        "XYLEM_OPEN_SCOPES": "none",
    }
    assert read_settings(open_scopes="none").open_scopes == ()
    assert ADMIN["ports"] == ["127.0.0.1:8082:8080"]
    store, *others = ADMIN["volumes"]
    assert (store["target"], "read_only" in store) == ("/store", False)
    assert others == ["data:/data", "/tmp"]
    assert "xylem-admin" not in (DEPLOY / "nginx.conf").read_text()


def test_what_the_image_listens_on_opens_nothing() -> None:
    host = re.findall(r"XYLEM_HOST=(\S+)", DOCKERFILE)[0]
    assert open_scopes(read_settings(host=host)) == frozenset()
    assert '"/store", "/data"]' in DOCKERFILE


FILES = sorted(
    file
    for file in (ROOT / "Dockerfile", *DEPLOY.rglob("*"))
    if file.is_file() and file.name != "postgres.env" and file.suffix != ".pyc"
)
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
OF_THE_SHELL = {"XYLEM_STORE_DIR"}
"""What compose.yaml takes from the shell."""

FOREIGN = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
ENDINGS = ("", "_bucket", "_sum", "_count")


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_setting_is_one(file: Path) -> None:
    known = variables().keys() | ELSEWHERE | OF_THE_SHELL
    assert set(re.findall(r"XYLEM_[A-Z_]*[A-Z]", file.read_text())) <= known


@pytest.mark.parametrize("name", ["alerts.yaml", "grafana/xylem.json"])
def test_every_figure_is_one(tmp_path: Path, name: str) -> None:
    text = (DEPLOY / name).read_text()
    if name.endswith(".json"):
        board = json.loads(text)
        queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
        text = "\n".join([*queries, *(each["query"] for each in board["templating"]["list"])])
    found = set(re.findall(r"\b(?:xylem|process)_[a-z_]+", text))
    assert found <= FOREIGN | {
        name_of(family) + end for family in families(tmp_path) for end in ENDINGS
    }
    assert len(found) > 8


def test_labels_of_figures_are_theirs() -> None:
    labels = {"instance", "job", "le", "worker"}
    for _, told, _ in table_rows("metrics.md").values():
        labels |= set(told.split(", "))
    unknown = [
        f"{name}: by ({group}): {label.strip()}"
        for name in ("alerts.yaml", "grafana/xylem.json")
        for group in re.findall(r"by \(([^)]*)\)", (DEPLOY / name).read_text())
        for label in group.split(",")
        if label.strip() not in labels
    ]
    assert not unknown, "\n".join(unknown)


def test_every_alert_says_what_to_do() -> None:
    [group] = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"]
    assert len(group["rules"]) == 23
    incomplete = [
        rule
        for rule in group["rules"]
        if not (rule["alert"] and rule["expr"] and rule["annotations"]["action"])
    ]
    assert incomplete == []


def test_probes_request_existing_routes_on_the_images_ports() -> None:
    app = create_app(read_settings())
    routes = {getattr(route, "path", "") for route in app.routes} | set(app.openapi()["paths"])
    port = re.findall(r"XYLEM_PORT=(\d+)", DOCKERFILE)[0]
    n_paths = 0
    faults = []
    for file in KUBERNETES:
        text = file.read_text()
        paths = re.findall(r"^\s+path: (/\S+)$", text, re.MULTILINE)
        n_paths += len(paths)
        container_ports = re.findall(r"containerPort: (\S+)", text)
        named = re.findall(r"^ +(?:- )?(?:port|targetPort): (\S+)$", text, re.MULTILINE)
        unknown = {*paths} - routes | {*container_ports} - {port}
        unknown |= {*named} - {port, "http", "53", "5432"}
        faults += [f"{file.name}: {each}" for each in sorted(unknown)]
    assert not faults, "\n".join(faults)
    assert n_paths >= 7
    balancer = (DEPLOY / "haproxy.cfg").read_text()
    assert set(re.findall(r"uri (\S+)", balancer)) == {"/readyz"}
    assert set(re.findall(r"server xylem-\d xylem-\d:(\d+)", balancer)) == {port}
    assert f"XYLEM_PORT={port}\n" in (DEPLOY / "systemd" / "xylem.env").read_text()


def test_commands_are_those_of_xylem() -> None:
    named = [
        name for file in KUBERNETES for name in re.findall(r"args: \[([^,\]]+)", file.read_text())
    ]
    for unit in (DEPLOY / "systemd").glob("*.service"):
        named += re.findall(r"^ExecStart=\S+/xylem (\w+)", unit.read_text(), re.MULTILINE)
    assert set(named) == {"serve", "worker", "train"}
    assert set(named) <= COMMANDS.keys()


def test_a_unit_has_time_to_drain() -> None:
    environment = (DEPLOY / "systemd" / "xylem.env").read_text()
    told = dict(re.findall(r"^(XYLEM_\w+_SECONDS)=(\d+)$", environment, re.MULTILINE))
    stop = int(
        re.findall(r"TimeoutStopSec=(\d+)", (DEPLOY / "systemd" / "xylem.service").read_text())[0]
    )
    assert stop > sum(map(int, told.values()))


def test_what_manifests_name_is_there() -> None:
    kustomization = (DEPLOY / "kubernetes" / "kustomization.yaml").read_text()
    listed = set(re.findall(r"^  - (\S+\.yaml)$", kustomization, re.MULTILINE))
    others = {file.name for file in KUBERNETES} - {
        "kustomization.yaml",
        "monitor.yaml",
        "train.yaml",
    }
    assert listed == others
    text = "\n".join(file.read_text() for file in KUBERNETES)
    claims = set(re.findall(r"claimName: (\S+)", text))
    assert claims == {"xylem-store", "xylem-data"}
    storage = (DEPLOY / "kubernetes" / "storage.yaml").read_text()
    assert set(re.findall(r"^  name: (\S+)", storage, re.MULTILINE)) == claims
    assert "create secret generic xylem-database" in text
    assert text.count("name: xylem-database\n") == 4
    everything = "\n".join(file.read_text() for file in FILES)
    assert not re.search(r"postgresql\+psycopg://[^\s:]+:(?!PASSWORD@)", everything)


FORMS = {
    "integer": "^[0-9]+$",
    "number": "^[0-9]+([.][0-9]+)?$",
    "boolean": "^(true|false|1|0|yes|no|on|off)$",
}
"""How the value of a variable is written that is not a text; quotes around it are usual."""


def config_schema() -> dict[str, dict[str, object]]:
    """Return the schema of each variable of the chart's `config`, as the settings have it."""
    fields = {**Settings.model_json_schema()["properties"]}
    fields |= Limits.model_json_schema()["properties"]
    schemas: dict[str, dict[str, object]] = {name: {"type": "string"} for name in sorted(ELSEWHERE)}
    for variable in variables():
        field = fields[variable.removeprefix("XYLEM_").lower()]
        kinds = {field.get("type")} | {each.get("type") for each in field.get("anyOf", [])}
        (kind,) = kinds & FORMS.keys() or {"string"}
        is_typed = "type" in field or "anyOf" in field
        schemas[variable] = {"type": "string" if is_typed else ["integer", "string"]}
        if kind in FORMS:
            schemas[variable] = {"type": [kind, "string"], "pattern": FORMS[kind]}
        if "enum" in field:
            schemas[variable]["enum"] = field["enum"]
    return schemas


def test_values_of_the_charts_config_have_the_types_of_settings() -> None:
    """After a change of the settings, put what is expected here into the schema."""
    schema = json.loads((DEPLOY / "helm/xylem/values.schema.json").read_text())
    config = schema["properties"]["config"]
    assert config["additionalProperties"] is False
    assert config["properties"] == config_schema()


def test_every_container_of_compose_has_a_memory_limit() -> None:
    limits = {name: service.get("mem_limit") for name, service in SERVICES.items()}
    assert all(limits.values()), limits
