"""A verb of aliases that is not there: a change, a route and a command make it, and
nothing else.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import pytest
from fastapi import Request
from pydantic import SecretStr
from tests.conftest import Run, serving, settings_of
from tests.helpers.alias_helpers import split
from tests.helpers.served_models import publish_model

from xylem.admin.registry.remote import RemoteStore
from xylem.api.routes import aliases as routes
from xylem.api.routes.operations import ModelName
from xylem.api.routes.registry import cause_of
from xylem.api.routes.requests import Wired, json_body
from xylem.api.schemas.registry import SplitChanged
from xylem.cli import aliases as commands
from xylem.cli.options import DEFAULT_STORE, LATEST, Json, StoreDir
from xylem.serving.schemas.fields import RequestModel
from xylem_store.alias import PARTS, Alias, TrafficShare, promoted, with_canary
from xylem_store.errors import Conflict
from xylem_store.store import Store

KEY = "correct-horse-battery-staple"


# 1. model_store/xylem_store/alias.py
def swapped(alias: Alias) -> Alias:
    """Return an alias with its canary and the version that it names in each other's places."""
    if alias.canary is None:
        raise Conflict("expected a canary to swap with, found none")
    canary, parts = alias.canary
    return alias._replace(version=canary, canary=TrafficShare(alias.version, PARTS - parts))


# 2. service/xylem/api/schemas/registry.py
class SwapRequest(RequestModel):
    """Why canary and stable version change places."""

    reason: str = ""


# 3. service/xylem/api/routes/aliases.py
async def swap(
    model: ModelName,
    alias: str,
    body: Annotated[SwapRequest, json_body(SwapRequest)],
    request: Request,
    services: Wired,
) -> SplitChanged:
    cause = cause_of(request, body.reason)
    found = await services.change(services.registry.change, model, alias, "swapped", swapped, cause)
    return SplitChanged(**found.split())


# 4. service/xylem/cli/aliases.py
def swap_command(
    model: commands.ModelName,
    alias: commands.Alias = LATEST,
    reason: commands.Reason = "",
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    registry = commands.registry_of(store)
    commands.print_split(
        registry.change(model, alias, "swapped", swapped, commands.cause_of(reason)), json
    )


@pytest.fixture(autouse=True)
def verb() -> Iterator[None]:
    routes.router.post("/swap")(swap)
    commands.app.command("swap")(swap_command)
    yield
    routes.router.routes.pop()
    commands.app.registered_commands.pop()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "store")
    for seed in (1, 2):
        publish_model(made, "raw", "raw", seed=seed)
    split(made, "raw", (1, 1000))
    return made


async def test_over_http_it_is_served_and_told(store: Store) -> None:
    path = "/v1/admin/models/raw/aliases/latest/swap"
    async with serving(settings_of(store.root, admin_key=SecretStr(KEY))) as (_, client):
        assert (await client.post(path, json={})).status_code == 401
        client.headers["authorization"] = f"Bearer {KEY}"
        done = await client.post(path, json={"reason": "it is better"})
        assert done.status_code == 200, done.text
        assert (done.json()["version"], done.json()["canary"]) == (1, {"version": 2, "weight": 0.9})
        served = (await client.get("/v1/models/raw")).json()
        assert (served["aliases"], served["splits"]["latest"]["canary"]["version"]) == (
            {"latest": 1},
            2,
        )
        (change,) = (await client.get("/v1/admin/models/raw/history?limit=1")).json()["changes"]
        assert (change["action"], change["why"], change["to_version"]) == (
            "swapped",
            "it is better",
            1,
        )
        assert change["verdict"]["canary"] == {"version": 2, "weight": 0.9}
        split(store, "raw")
        refused = await client.post(path, json={})
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")


def test_on_the_command_line(store: Store, run_here: Run) -> None:
    done = run_here("models", "swap", "raw", "--reason", "so", store=store.root)
    assert (done.returncode, done.stdout) == (0, "raw: latest -> 1, canary 2 at 0.9\n")
    assert store.moves("raw")[-1].action == "swapped"


def test_in_an_object_store(store: Store, tmp_path: Path) -> None:
    remote = RemoteStore(f"file://{tmp_path}/remote")
    for version, change in ((1, promoted(1)), (2, with_canary(2, 0.1))):
        remote.change("raw", {"latest": change}, remote.push(store, "raw", version))
    after = remote.change("raw", {"latest": swapped}).aliases["latest"]
    assert (after.version, after.canary) == (2, TrafficShare(1, 9000))
