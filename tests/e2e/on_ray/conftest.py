"""One cluster for all tests of Ray: it takes longer to start than most of them to run."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.test_object_store import environment_of
from tests.helpers.replicas import reserved_ports

from xylem.extras.ray.cluster import connect

NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}


def add_node(cluster: Any, tries: int = 3) -> None:
    """Add a node: one that does not answer within Ray's 30 seconds, as
    on a busy machine, is tried again.
    """
    try:
        cluster.add_node(**NODE)
    except Exception as error:
        if tries == 1 or "timed out during startup" not in str(error):
            raise
        add_node(cluster, tries - 1)


@pytest.fixture(scope="package")
def s3_port() -> Iterator[int]:
    """The port of an S3 of which the cluster's processes know."""
    with reserved_ports(1) as [port], pytest.MonkeyPatch.context() as patch:
        for name, value in environment_of(port).items():
            patch.setenv(name, value)
        yield port


@pytest.fixture(scope="package")
def cluster(s3_port: int) -> Iterator[Any]:
    """A cluster of two nodes, to which this process is connected: commands use that connection."""
    import ray
    from ray.cluster_utils import Cluster

    made = Cluster()
    try:
        for _ in range(2):
            add_node(made)
        with connect(made.address):
            yield made
        assert not ray.is_initialized()
    finally:
        made.shutdown()
