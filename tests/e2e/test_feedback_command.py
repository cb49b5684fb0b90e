"""`xylem feedback`: to a database and to a server, twice the same file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from model_store.store import Store
from tests.servers import ServerProcess

_RUN = "from service.cli import main; main()"
RAW = {"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0]}


def test_a_file_is_sent_twice_and_counts_once(own_store: Store, tmp_path: Path) -> None:
    lines = [{"event_id": f"e{i}", "instance": RAW, "labels": [f"label::{i % 11}"]} for i in range(100)]
    file = tmp_path / "events.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines[:70]))

    def send(*options: str) -> tuple[int, dict[str, int]]:
        command = [sys.executable, "-c", _RUN, "feedback", "raw", "--data", str(file), "--json", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
        return done.returncode, found

    store = ("--store", str(own_store.root))
    assert send(*store) == (0, {"applied": 70, "duplicate": 0, "late": 0, "rejected": 0})
    file.write_text("".join(json.dumps(line) + "\n" for line in lines) + "{\n")
    with ServerProcess(own_store.root) as server:
        url = ("--url", f"http://127.0.0.1:{server.port}")
        assert send(*url) == (2, {"applied": 30, "duplicate": 70, "late": 0, "rejected": 1})
        status, thresholds = server.ask("GET", "/v1/models/raw/thresholds")
        assert (status, thresholds["n_events"]) == (200, 100)
        assert server.terminate() == 0
