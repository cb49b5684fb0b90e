"""What the files of deploy/ promise: pinned images, health checks, no password; all that they name exists."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from service.access.key_text import open_scopes
from service.base.settings import ELSEWHERE, read_settings, variables
from service.server.app import create_app
from tests.contract.test_documents import COMMANDS, families, name_of

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "deploy" / "compose.yaml").read_text()


def service(name: str) -> str:
    """Return the lines of a service (there is no YAML reader here, and none is needed)."""
    found = re.search(rf"^  {name}:\n((?:    .*\n|\s*\n)+)", TEXT, re.MULTILINE)
    assert found, name
    return found[1]


def test_images_are_pinned() -> None:
    images = re.findall(r"^\s+image: (\S+)$", TEXT, re.MULTILINE)
    assert sorted(image.partition(":")[0] for image in images) == ["nginx", "postgres", "xylem"]
    assert all(re.fullmatch(r"[a-z]+:\d+\.\d+(\.\d+)?", image) for image in images if image != "xylem")


def test_the_database_keeps_its_files_and_says_when_it_is_ready() -> None:
    postgres = service("postgres")
    assert "- database:/var/lib/postgresql/data" in postgres
    assert re.search(r"^volumes:\n  database:", TEXT, re.MULTILINE)
    assert '"pg_isready", "--host=127.0.0.1"' in postgres
    assert "ports:" not in postgres


def test_the_password_is_in_a_file_that_git_ignores() -> None:
    url = make_url(re.findall(r"XYLEM_DATABASE_URL: &database (\S+)", TEXT)[0])
    assert (url.drivername, url.username, url.password, url.host) == (
        "postgresql+psycopg",
        "xylem",
        None,
        "postgres",
    )
    assert f"POSTGRES_USER: {url.username}\n" in TEXT
    assert f"POSTGRES_DB: {url.database}\n" in TEXT
    assert not re.search(r"PASSWORD:", TEXT)
    assert TEXT.count("env_file: postgres.env") == 2
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    ignored = subprocess.run(["git", "check-ignore", "-q", "deploy/postgres.env"], cwd=ROOT, check=False)
    assert ignored.returncode == 0
    listed = subprocess.run(
        ["git", "ls-files", "deploy"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "postgres.env" not in listed.stdout


def extension(name: str) -> str:
    """Return the lines of an extension, which services share."""
    found = re.search(rf"^{name}:.*?\n\n", TEXT, re.MULTILINE | re.DOTALL)
    assert found, name
    return found[0]


def settings(lines: str) -> dict[str, str]:
    """Return the XYLEM_ variables that lines set."""
    return dict(re.findall(r'^\s+(XYLEM_\w+): "?([^"\n]*?)"?(?:  #.*)?$', lines, re.MULTILINE))


def test_a_replica_predicts_without_the_database() -> None:
    assert "<<: *server" in extension("x-replica")
    server = extension("x-server")
    assert "depends_on: [postgres]" in server
    assert "condition: service_healthy" not in server


def test_a_replica_only_reads_and_opens_what_it_says() -> None:
    replica = extension("x-replica")
    assert "target: /store\n      read_only: true" in replica
    told = settings(replica)
    assert (told["XYLEM_JOBS"], told["XYLEM_OPEN_SCOPES"]) == ("0", "predict,metrics")
    assert read_settings(open_scopes=told["XYLEM_OPEN_SCOPES"]).open_scopes == ("predict", "metrics")
    assert "ports:" not in replica


def test_the_server_that_trains_is_for_this_machine_alone() -> None:
    admin = service("xylem-admin")
    told = settings(admin)
    assert (told["XYLEM_JOBS"], told["XYLEM_DATA_DIR"], told["XYLEM_OPEN_SCOPES"]) == ("1", "/data", "none")
    assert told["XYLEM_DATABASE_URL"] == "*database"
    assert read_settings(open_scopes="none").open_scopes == ()
    assert re.findall(r'^      - "([^"]+)"$', admin, re.MULTILINE) == ["127.0.0.1:8082:8080"]
    assert "target: /store" in admin and "read_only" not in admin
    assert "- data:/data" in admin
    assert re.search(r"^volumes:\n(  .*\n)*  data:", TEXT, re.MULTILINE)
    assert "xylem-admin" not in (ROOT / "deploy" / "nginx.conf").read_text()


def test_every_setting_of_compose_is_one() -> None:
    known = variables().keys()
    assert settings(TEXT).keys() - {"XYLEM_STORE_DIR"} <= known


def test_what_the_image_listens_on_opens_nothing() -> None:
    image = (ROOT / "Dockerfile").read_text()
    host = re.findall(r"XYLEM_HOST=(\S+)", image)[0]
    assert open_scopes(read_settings(host=host)) == frozenset()
    assert '"/store", "/data"]' in image


DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
FILES = sorted(
    file
    for file in DEPLOY.rglob("*")
    if file.is_file() and file.name != "postgres.env" and file.suffix != ".pyc"
)
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
OF_THE_SHELL = {"XYLEM_STORE_DIR"}
"""What compose.yaml takes from the shell."""

FOREIGN = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
ENDINGS = ("_bucket", "_sum", "_count")
RELATIVE = re.compile(r"XYLEM_[A-Z_]*[A-Z]")


def texts() -> Iterator[tuple[str, str]]:
    for file in FILES:
        yield str(file.relative_to(DEPLOY)), file.read_text()


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(DEPLOY)))
def test_every_setting_is_one(file: Path) -> None:
    known = variables().keys() | ELSEWHERE | OF_THE_SHELL
    assert set(RELATIVE.findall(file.read_text())) <= known


def figures(tmp_path: Path) -> set[str]:
    names = {name_of(family) for family in families(tmp_path)}
    return names | {name + ending for name in names for ending in ENDINGS} | FOREIGN


@pytest.mark.parametrize("name", ["alerts.yaml", "grafana/xylem.json"])
def test_every_figure_is_one(tmp_path: Path, name: str) -> None:
    text = (DEPLOY / name).read_text()
    if name.endswith(".json"):
        board = json.loads(text)
        queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
        queries += [each["query"] for each in board["templating"]["list"]]
        text = "\n".join(queries)
    found = set(re.findall(r"\b(?:xylem|process)_[a-z_]+", text))
    assert found <= figures(tmp_path)
    assert len(found) > 8


def test_labels_of_figures_are_theirs() -> None:
    page = (DEPLOY.parent / "docs" / "metrics.md").read_text()
    labels = {"instance", "job", "le", "worker"}
    for line in page.splitlines():
        if line.startswith("| `xylem_"):
            labels |= {label.strip() for label in line.split("|")[3].split(",")}
    for name in ("alerts.yaml", "grafana/xylem.json"):
        text = (DEPLOY / name).read_text()
        for group in re.findall(r"by \(([^)]*)\)", text):
            assert {label.strip() for label in group.split(",")} <= labels, group


def test_every_alert_says_what_to_do() -> None:
    text = (DEPLOY / "alerts.yaml").read_text()
    counts = {
        key: len(re.findall(rf"^ +(?:- )?{key}:", text, re.MULTILINE)) for key in ("alert", "expr", "action")
    }
    assert set(counts.values()) == {17}


def test_probes_ask_routes_that_there_are_and_ports_are_the_image_s() -> None:
    routes = {getattr(route, "path", "") for route in create_app(read_settings()).routes}
    routes |= set(create_app(read_settings()).openapi()["paths"])
    port = re.findall(r"XYLEM_PORT=(\d+)", (DEPLOY.parent / "Dockerfile").read_text())[0]
    n_paths = 0
    for file in KUBERNETES:
        text = file.read_text()
        paths = re.findall(r"^\s+path: (/\S+)$", text, re.MULTILINE)
        n_paths += len(paths)
        assert set(paths) <= routes, file.name
        assert set(re.findall(r"containerPort: (\S+)", text)) <= {port}
        named = re.findall(r"^ +(?:- )?(?:port|targetPort): (\S+)$", text, re.MULTILINE)
        assert set(named) <= {port, "http", "53", "5432"}, file.name
    assert n_paths >= 7
    balancer = (DEPLOY / "haproxy.cfg").read_text()
    assert set(re.findall(r"uri (\S+)", balancer)) == {"/readyz"}
    assert set(re.findall(r"server xylem-\d xylem-\d:(\d+)", balancer)) == {port}
    assert f"XYLEM_PORT={port}\n" in (DEPLOY / "systemd" / "xylem.env").read_text()


def test_commands_are_those_of_xylem() -> None:
    named = [
        words[0]
        for file in KUBERNETES
        for words in (group.split(", ") for group in re.findall(r"args: \[([^\]]+)\]", file.read_text()))
    ]
    for unit in (DEPLOY / "systemd").glob("*.service"):
        named += re.findall(r"^ExecStart=\S+/xylem (\w+)", unit.read_text(), re.MULTILINE)
    assert set(named) == {"serve", "worker", "train"}
    assert set(named) <= COMMANDS.keys()


def test_a_unit_has_time_to_drain() -> None:
    environment = (DEPLOY / "systemd" / "xylem.env").read_text()
    told = dict(re.findall(r"^(XYLEM_\w+_SECONDS)=(\d+)$", environment, re.MULTILINE))
    stop = int(re.findall(r"TimeoutStopSec=(\d+)", (DEPLOY / "systemd" / "xylem.service").read_text())[0])
    assert stop > sum(map(int, told.values()))


def test_what_manifests_name_is_there() -> None:
    kustomization = (DEPLOY / "kubernetes" / "kustomization.yaml").read_text()
    listed = set(re.findall(r"^  - (\S+\.yaml)$", kustomization, re.MULTILINE))
    others = {file.name for file in KUBERNETES} - {"kustomization.yaml", "monitor.yaml", "train.yaml"}
    assert listed == others
    text = "\n".join(file.read_text() for file in KUBERNETES)
    claims = set(re.findall(r"claimName: (\S+)", text))
    assert claims == {"xylem-store", "xylem-data"}
    storage = (DEPLOY / "kubernetes" / "storage.yaml").read_text()
    assert set(re.findall(r"^  name: (\S+)", storage, re.MULTILINE)) == claims
    assert "create secret generic xylem-database" in text
    assert text.count("name: xylem-database\n") == 4
    assert not re.search(
        r"postgresql\+psycopg://[^\s:]+:(?!PASSWORD@)", "\n".join(text for _, text in texts())
    )


def test_kustomize_builds_it() -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    command = [kubectl, "kustomize", DEPLOY / "kubernetes"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    kinds = sorted(re.findall(r"^kind: (\S+)$", done.stdout, re.MULTILINE))
    assert kinds.count("Deployment") == 3
    assert {"Service", "PodDisruptionBudget", "HorizontalPodAutoscaler", "NetworkPolicy"} <= set(kinds)
    assert "image: xylem\n" not in done.stdout
