"""One cluster for all tests of Ray: it takes longer to start than most of them to run."""

from collections.abc import Iterator
from typing import Any

import pytest

from service.executors.ray import connect
from tests.clusters import cluster_of
from tests.e2e.test_object_store import environment_of
from tests.replicas import reserved_ports


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

    with cluster_of(2) as made:
        with connect(made.address):
            yield made
        assert not ray.is_initialized()
