"""Objectives, limits and sums in the database, also beside an older release."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text, update
from tests.helpers.common_thresholds import begun, caught_up, some_events
from tests.helpers.feedback_helpers import (
    Replica,
)

from xylem.base.db.tables import CHECKPOINTS, LOG
from xylem.base.errors import DatabaseUnavailable
from xylem.thresholds.methods.aims import N_SUMS, Aim
from xylem.thresholds.store import codec
from xylem.thresholds.store.state import ThresholdDatabase


@pytest.fixture
def replica() -> Iterator[Callable[..., Replica]]:
    """What opens a replica over the database of a URL; in the end all are closed."""
    with contextlib.ExitStack() as opened:
        yield lambda *arguments: opened.enter_context(contextlib.closing(Replica(*arguments)))


def test_an_older_release_serves_beside(tmp_path: Any, replica: Any) -> None:
    """It logs labels' thresholds and no sums, and checkpoints without an objective."""
    url = f"sqlite:///{tmp_path}/xylem.db"
    one = replica(url)
    ThresholdDatabase(one.database).save("m", 1, begun("instance"))
    events = some_events(12, 1)
    one.send(*events[:6])
    one.send(*events[6:9])
    sums = one.live.snapshot().aim.sums.tolist()
    older = one.live.snapshot()._replace(aim=Aim.begin("macro"))
    head = codec.encode_state(older).split(b"\n", 2)[1]
    plain = codec.json.loads(head)
    for name in ("objective", "limit", "sums"):
        del plain[name]
    state = codec.encode_state(older).replace(head, codec.json.dumps(plain).encode())
    assert codec.decode_state(state).aim.objective == "macro"
    with one.database.write() as connection:
        connection.execute(
            CHECKPOINTS.insert(),
            {
                "version_id": 1,
                "epoch": one.live.epoch,
                "kind": "kept",
                "created_at": 0.0,
                "state": state,
                "objective": None,
            },
        )
    one.send(*events[9:])
    with one.database.write() as connection:
        connection.execute(update(LOG).where(LOG.c.epoch == one.live.epoch).values(sums=None))
    found = caught_up(replica(url)).live.snapshot()
    assert found.aim.objective == "instance"
    assert found.aim.sums.tolist() == sums
    assert found.counters.marks.tolist() == one.live.snapshot().counters.marks.tolist()
    ThresholdDatabase(one.database).save("m", 1, older)  # for macro-F again, by the older release
    with one.database.write() as connection:
        connection.execute(
            update(CHECKPOINTS)
            .where(CHECKPOINTS.c.epoch == one.live.epoch + 1)
            .values(objective=None, state=state)
        )
    found = caught_up(replica(url)).live.snapshot()
    assert found.aim.objective == "macro"
    assert found.thresholds.tobytes() == older.thresholds.tobytes()


def test_columns_are_added_to_an_older_database(tmp_path: Any, replica: Any) -> None:
    url = f"sqlite:///{tmp_path}/xylem.db"
    one = replica(url)
    ThresholdDatabase(one.database).save("m", 1, begun("macro"))
    one.send(*some_events(5, 1))
    before = one.bits()
    with one.database.write() as connection:
        connection.execute(text("ALTER TABLE threshold_log DROP COLUMN sums"))
        connection.execute(text("ALTER TABLE threshold_checkpoints DROP COLUMN objective"))
    other = caught_up(replica(url))
    assert other.bits() == before
    assert other.live.snapshot().aim.objective == "macro"
    other.send(*some_events(5, 2))
    assert caught_up(replica(url)).bits() == other.bits()


def test_aims_and_sums_come_back_as_they_were() -> None:
    sums = np.arange(N_SUMS, dtype=np.int64)
    for objective, limit in (("macro", None), ("micro", 50), ("instance", 1)):
        aim = Aim(objective, limit, sums * (objective != "macro"))
        found = codec.decode_state(codec.encode_state(begun(objective)._replace(aim=aim))).aim
        assert (found[:2], found.sums.tolist()) == (aim[:2], aim.sums.tolist())
    for damaged in (
        Aim("other", 1, sums),
        Aim("micro", None, sums),
        Aim("instance", 0, sums),
        Aim("macro", 4, sums),
        Aim("instance", 4, sums[1:]),
    ):
        with pytest.raises(DatabaseUnavailable):
            codec.decode_state(codec.encode_state(begun("macro")._replace(aim=damaged)))
    nothing = codec.NO_SUMS
    assert codec.encode_sums(nothing, nothing) is None
    data = codec.encode_sums(sums, 2 * sums)
    assert [each.tolist() for each in codec.decode_sums(data)] == [
        sums.tolist(),
        (2 * sums).tolist(),
    ]
    assert [each.any() for each in codec.decode_sums(None)] == [False, False]
    for damaged in (b"", data[:-1], codec.zlib.compress(b"\0" * 16)):
        with pytest.raises(DatabaseUnavailable):
            codec.decode_sums(damaged)
