"""Requests of one row to servers whose alias has a canary, a shadow or denied labels."""

import re
from collections.abc import Callable
from typing import Any

from tests.helpers.servers import Connection, ServerProcess

ROW = {"indices": [1, 5, 9], "values": [1.0, 0.5, 2.0]}
ALIAS = "/models/raw/aliases/latest"
PREDICT = "/v1/models/raw/predict"
AS_A_ROUTE = {"origin": "https://shop.example"}
"""With which a request is no plain whole one."""

LABELS = {f"label::{i}" for i in range(11)}


Replicas = tuple[ServerProcess, ServerProcess]


class Asker(Connection):
    """Asks over one connection, so that heads are remembered."""

    def answer(self, path: str = PREDICT, top_r: int = 6, **headers: str) -> dict[str, Any]:
        status, found = self.ask("POST", path, {"instances": [ROW], "top_r": top_r}, **headers)
        assert status == 200, found
        return found  # type: ignore[no-any-return]

    def version(self, **headers: str) -> int:
        return int(self.answer(**headers)["version"])

    def labels(self, path: str = PREDICT, **headers: str) -> set[str]:
        (prediction,) = self.answer(path, len(LABELS), **headers)["predictions"]
        return {label["label"] for label in prediction["labels"]}


Connect = Callable[[ServerProcess], Asker]


def put(server: ServerProcess, role: str, **body: object) -> Any:
    status, answer = server.admin("PUT", f"{ALIAS}/{role}", body)
    assert status == 200, answer
    return answer


def move(server: ServerProcess, how: str, to: int, **body: object) -> None:
    status, moved = server.admin("POST", f"/models/raw/{how}", body)
    assert (status, moved["version"]) == (200, to), moved


def figures(server: ServerProcess, pattern: str) -> dict[Any, float]:
    text = server.ask("GET", "/metrics")[1].decode()
    return {m.groups()[:-1]: float(m.groups()[-1]) for m in re.finditer(pattern, text)}


def split_of(server: ServerProcess) -> dict[str, Any]:
    return server.ask("GET", "/v1/models/raw")[1]["splits"]  # type: ignore[no-any-return]
