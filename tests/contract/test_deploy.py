"""What `deploy/compose.yaml` promises: pinned images, health checks, and no password in the repository."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from sqlalchemy import make_url

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
    url = make_url(re.findall(r"XYLEM_DATABASE_URL: (\S+)", TEXT)[0])
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


def test_a_replica_predicts_without_the_database() -> None:
    replica = re.search(r"^x-replica:.*?\n\n", TEXT, re.MULTILINE | re.DOTALL)
    assert replica
    assert "depends_on: [postgres]" in replica[0]
    assert "condition: service_healthy" not in replica[0]
