"""What `deploy/compose.yaml` promises: pinned images, health checks, what is open, no password in git."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from sqlalchemy import make_url

from service.access.scopes import open_scopes
from service.base.settings import read_settings, variables

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


def test_every_setting_is_one() -> None:
    known = variables().keys()
    assert settings(TEXT).keys() - {"XYLEM_STORE_DIR"} <= known


def test_what_the_image_listens_on_opens_nothing() -> None:
    image = (ROOT / "Dockerfile").read_text()
    host = re.findall(r"XYLEM_HOST=(\S+)", image)[0]
    assert open_scopes(read_settings(host=host)) == frozenset()
    assert '"/store", "/data"]' in image
