"""Clusters of Ray on this machine, nodes of one processor each."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}


@contextmanager
def cluster_of(n_nodes: int) -> Iterator[Any]:
    """Yield a cluster of so many nodes, shut down in the end."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args=NODE)
    try:
        for _ in range(n_nodes - 1):
            made.add_node(**NODE)
        yield made
    finally:
        made.shutdown()
