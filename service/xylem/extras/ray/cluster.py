"""The connection of a command to a Ray cluster, and what its nodes must have.

Ray is imported when a connection begins.
"""

import logging
import os
import platform
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from xylem.base import (
    BadParameter,
    Unavailable,
)
from xylem_store import package_folders, source_digest

CONNECT_SECONDS = 10.0  # the longest wait for an address to accept a connection

# The longest wait for a node's versions: its first process imports for a while.
NODE_SECONDS = 120.0

# The file in which `ray start` writes the address that "auto" stands for.
_CURRENT = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")


@contextmanager
def connect(address: str) -> Iterator[Any]:
    """Yield the module `ray`, connected to a cluster whose nodes have the versions of this process.

    address  "auto", HOST:PORT of a cluster that this machine is a node of, or ray://HOST:PORT

    If the process is connected already, that connection is used and stays; else it ends with the
    block. Raises BadParameter if the address is invalid or versions differ between nodes, and
    Unavailable if nothing answers there within CONNECT_SECONDS, or a node does not within
    NODE_SECONDS.
    """
    import ray

    is_ours = not ray.is_initialized()
    if is_ours:
        _reach(address)
        # prevents a warning of Ray about a future change
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            ray.init(
                address, log_to_driver=False, configure_logging=False, logging_level=logging.ERROR
            )
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise Unavailable(
                f"ray: expected to join the cluster at {address}, found {type(error).__name__}: "
                f"{' '.join(str(error).split())[:300]}"
            ) from None
    try:
        _check_nodes(ray)
        yield ray
    finally:
        if is_ours:
            ray.shutdown()


def _reach(address: str) -> None:
    """Raise BadParameter or Unavailable if nothing listens at an address.

    Ray itself would wait two minutes, and then exit.
    """
    place = address.removeprefix("ray://")
    if address == "auto":
        place = os.environ.get("RAY_ADDRESS", "") or (
            _CURRENT.read_text() if _CURRENT.is_file() else ""
        )
        if not place:
            raise Unavailable(
                "ray: expected a cluster that runs on this machine, found none: start one by "
                "`ray start --head`, or give the address of one"
            )
        place = place.strip().removeprefix("ray://")
    host, colon, port = place.rpartition(":")
    if not (colon and host and port.isdecimal() and 0 < int(port) < 65536):
        raise BadParameter(
            f"ray: expected auto, HOST:PORT or ray://HOST:PORT, found {address[:100]!r}"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        fault = f"expected a cluster at {place}, found none: {error.strerror or error}"
        raise Unavailable(f"ray: {fault}") from None


def _versions() -> dict[str, str]:
    """Return the versions that must be the same on all nodes.

    With other versions a step might not give the same bits on each node.
    """
    import numba

    sources = source_digest(package_folders()["xylem"] / "trainers" / "registry.py")[:12]
    return {
        "Python": platform.python_version(),
        "Xylem": f"{version('xylem-serve')} ({sources})",
        "numba": numba.__version__,
        "numpy": np.__version__,
    }


def _check_nodes(ray: Any) -> None:
    """Raise BadParameter for a node that has a version other than this process."""
    versions = _versions()
    for name, answer in call_on_nodes(ray, _versions):
        if isinstance(answer, Exception):
            last_line = str(answer).strip().splitlines()[-1][:300]
            raise BadParameter(
                f"ray: expected Xylem {versions['Xylem']} on node {name}, found: {last_line}"
            )
        for package, required in versions.items():
            if answer[package] != required:
                raise BadParameter(
                    f"ray: expected {package} {required} on node {name}, as here, found "
                    f"{answer[package]}"
                )


def call_on_nodes(ray: Any, call: Callable[[], Any]) -> Iterator[tuple[str, Any]]:
    """Call a function on each node; yield the name of the node, and the result or the error.

    Raises Unavailable for a node that does not answer.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    errors = ray.exceptions
    task = ray.remote(call)
    pending = []
    for node in ray.nodes():
        if node["Alive"]:
            ref = task.options(
                num_cpus=0,
                max_retries=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
            ).remote()
            pending.append((node["NodeManagerAddress"], ref))
    for name, ref in pending:
        try:
            answer = ray.get(ref, timeout=NODE_SECONDS)
        except (errors.TaskUnschedulableError, errors.NodeDiedError):
            continue  # a node that died, though it was still listed as alive: it gets no steps
        except errors.GetTimeoutError:
            raise Unavailable(
                f"ray: expected node {name} to answer within {NODE_SECONDS:g} seconds, found that "
                "it does not"
            ) from None
        except (errors.RayError, ImportError) as error:
            answer = error
        yield name, answer
