"""Annif's door: what of a request runs where."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from model_store.store import Store
from service.serving import annif
from service.settings import Limits
from tests.served_models import publish_model

FORM = {"content-type": "application/x-www-form-urlencoded"}


def test_a_form_is_not_read_on_the_event_loop(
    tmp_path: Path, in_process: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of 8 MB, percent-encoded, takes more than a second to read."""
    read_in: list[threading.Thread] = []
    parse_form = annif.parse_form

    def noted(body: bytes, limits: Limits) -> Any:
        read_in.append(threading.current_thread())
        return parse_form(body, limits)

    monkeypatch.setattr(annif, "parse_form", noted)
    store = Store(tmp_path)
    publish_model(store, "text", "hashing")

    async def call(client: httpx.AsyncClient) -> None:
        loop = threading.current_thread()
        path = "/v1/projects/text/suggest"
        for body, status in (("text=a&limit=1", 200), ("text=a&limit=no", 422)):
            assert (await client.post(path, content=body, headers=FORM)).status_code == status
        assert len(read_in) == 2
        assert loop not in read_in

    in_process(call, store.root)
