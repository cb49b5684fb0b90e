"""Clusters of Ray on this machine, nodes of one processor each."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}


@contextmanager
def cluster_of(n_nodes: int) -> Iterator[Any]:
    """Yield a cluster of so many nodes, shut down in the end."""
    from ray.cluster_utils import Cluster

    made = Cluster()
    try:
        for _ in range(n_nodes):
            add_node(made)
        yield made
    finally:
        made.shutdown()


def add_node(cluster: Any, tries: int = 3) -> None:
    """Add a node: one that does not answer within Ray's 30 seconds, as on a busy machine, is tried again."""
    for left in range(tries - 1, -1, -1):
        try:
            cluster.add_node(**NODE)
            return
        except Exception as error:
            if not left or "timed out during startup" not in str(error):
                raise
