"""What is reported where no cluster can be reached: at once, in a sentence."""

import socket
from pathlib import Path

import pytest

from xylem.base.errors import BadParameter, Unavailable
from xylem.extras.ray import cluster

pytest.importorskip("ray")


def refusal(address: str) -> str:
    """What is said at an address of no cluster."""
    with pytest.raises((BadParameter, Unavailable)) as refused, cluster.connect(address):
        pass
    return str(refused.value)


def test_addresses_at_which_there_is_no_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for address in ("here", "host:", ":1", "host:99999", "ray://host"):
        assert f"expected auto, HOST:PORT or ray://HOST:PORT, found {address!r}" in refusal(address)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{bound.getsockname()[1]}"  # where nobody listens
    for address in (place, f"ray://{place}"):
        assert f"expected a cluster at {place}, found none: Connection refused" in refusal(address)
    current = tmp_path / "current"
    monkeypatch.setattr(cluster, "_CURRENT", current)
    assert "expected a cluster that runs on this machine, found none: start one" in refusal("auto")
    current.write_text(place)  # of a cluster that is gone
    assert f"expected a cluster at {place}, found none" in refusal("auto")
