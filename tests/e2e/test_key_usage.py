"""Usage of keys on a real server: nothing is lost at SIGTERM, and the command shows it."""

import contextlib
import json
import subprocess
import sys

from tests.helpers.servers import ServerProcess

from xylem.base.access.key_text import AccessScope
from xylem.base.access.keys import AccessKeys
from xylem.base.db.engine import Database, default_url
from xylem_store.store import Store

N_REQUESTS = 250


def test_no_request_is_lost_at_the_end_of_a_server(own_store: Store) -> None:
    with contextlib.closing(Database(default_url(own_store.root))) as database:
        key = AccessKeys(database).create("shop", [AccessScope.PREDICT], requests_per_second=1e6)
    headers = {"authorization": f"Bearer {key.text}"}
    body = {"instances": [{"indices": [1], "values": [1.0]}] * 2}
    with ServerProcess(own_store.root, workers=2, open_scopes="none") as server:
        for _ in range(N_REQUESTS):
            assert server.ask("POST", "/v1/models/raw/predict", body, **headers)[0] == 200
        assert server.terminate() == 0
        assert key.text not in server.log()
    command = [sys.executable, "-m", "xylem", "usage", "--store", own_store.root, "--json"]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    (line,) = json.loads(done.stdout.splitlines()[-1])["usage"]
    assert (line["name"], line["model"]) == ("shop", "raw")
    assert (line["requests"], line["rows"]) == (N_REQUESTS, 2 * N_REQUESTS)
