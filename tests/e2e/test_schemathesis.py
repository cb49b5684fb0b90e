"""R6: schemathesis over the whole OpenAPI document of a running
server, with a key that opens everything.

No answer is a server error, has a status or content type that the document does not have, or breaks
a schema.
"""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.jobs_helpers import settings_for
from tests.helpers.servers import ServerProcess

from xylem_store.store import Store

HERE = Path(__file__).resolve().parents[1]
COMMAND = HERE.parent / ".venv-clients" / "bin" / "schemathesis"
KEY = "correct-horse-battery-staple"
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,allow_header_conformance"
)
SAME = "/(versions|aliases)/[^/]+/(predict|batch|feedback|thresholds)$"
"""Paths whose routes are those of shorter paths too."""

QUICK = ("--phases", "examples,fuzzing", "--max-examples", "5", "--exclude-path-regex", SAME)
FUZZING = ("--phases", "fuzzing,stateful", "--max-examples", "200", "--max-time", "1800")
COVERAGE = ("--phases", "coverage", "--exclude-path-regex", "/batch$")
"""But batches: of their query string it makes one that is no HTTP any more, and comes
to no route.
"""


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(QUICK, id="quick"),
        pytest.param(FUZZING, id="fuzzing", marks=pytest.mark.soak),
        pytest.param(COVERAGE, id="coverage", marks=pytest.mark.soak),
    ],
)
def test_no_answer_breaks_the_document(
    own_store: Store, tmp_path: Path, size: Any, seed: int
) -> None:
    if not COMMAND.exists():
        pytest.skip("schemathesis is not installed (make test-system does)")
    options = {"admin_key": KEY, "data_dir": settings_for(tmp_path).data_dir, "access_log": False}
    with ServerProcess(own_store.root, **options) as server:
        command = [COMMAND, "run", f"http://127.0.0.1:{server.port}/openapi.json", *size]
        command += ["--header", f"Authorization: Bearer {KEY}", "--checks", CHECKS]
        command += ["--seed", str(seed), "--generation-database", "none"]
        command += ["--continue-on-failure", "--no-color", "--warnings", "off"]
        env = {
            **os.environ,
            "SCHEMATHESIS_HOOKS": "schemathesis_hooks",
            "PYTHONPATH": str(HERE / "helpers"),
        }
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-4000:]
        assert not server.events("failure"), server.events("failure")
        assert server.terminate() == 0
