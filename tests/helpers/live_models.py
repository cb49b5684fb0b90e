"""Models that follow a store, whose prepared versions are their names."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.helpers.served_models import publish_model
from xylem.serving.live.models import LiveModels
from xylem_store.store import Store
from xylem_store.version import Model

Live = LiveModels[str]


def name_of(model: Model) -> str:
    return f"{model.manifest.model}@{model.manifest.version}"


class Opened(list[str]):
    """Prepares versions, and keeps their names: none of version 3
    as long as it has an error to raise.
    """

    error: Exception | None = None

    def __call__(self, model: Model) -> str:
        self.append(name_of(model))
        if self.error is not None and model.manifest.version == 3:
            raise self.error
        return self[-1]


def live_over(store: Store, prepare: Callable[[Model], str] = name_of, **changes: Any) -> Live:
    return LiveModels(store, prepare, **{"openings_max": 9, "seconds_max": 30.0, **changes})


def bounded(*preload: str, models_loaded: int = 2) -> dict[str, Any]:
    """Return the options of models of which a few are open, some of them preloaded."""
    return {"models_loaded": models_loaded, "preload": preload}


def looked(store: Store, prepare: Callable[[Model], str] = name_of, **changes: Any) -> Live:
    live = live_over(store, prepare, **changes)
    live.look()
    return live


@asynccontextmanager
async def following(live: Live, poll_seconds: float) -> AsyncIterator[None]:
    """Follows the store; begins when it has been looked at."""
    task = asyncio.create_task(live.follow(poll_seconds, lambda: None))
    await live.has_looked.wait()
    yield
    task.cancel()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def held_by(gate: threading.Event) -> Callable[[Model], str]:
    """Prepares version 2 once the gate is open."""

    def prepare(model: Model) -> str:
        if model.manifest.version == 2:
            gate.wait(100)
        return name_of(model)

    return prepare


def find(live: Live, ref: str = "latest", model: str = "raw") -> str:
    return asyncio.run(live.find(model, ref))


def publish(store: Store, seed: int = 3) -> int:
    return publish_model(store, "raw", "raw", seed=seed).version


def damage(store: Store, name: str, version: int) -> None:
    file = max((store.root / "models" / name / "versions" / str(version)).rglob("*.npy"))
    file.chmod(0o644)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
