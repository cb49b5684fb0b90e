"""Restart replicas one after the other, never one while another is not
ready. Needs Python and nothing else.

    python3 deploy/rolling_restart.py --restart 'ssh {host} systemctl restart xylem' \\
        http://10.0.0.1:8080 http://10.0.0.2:8080

Before each restart all replicas must be ready. After it, that one must be again, and stay so for
`--settle` seconds, in which a load balancer sees it too. The command sends SIGTERM to the replica,
as systemctl and docker do, which then says for XYLEM_DRAIN_SECONDS that it is not ready, and
answers as ever.

Exit status: 0 all are restarted; 1 one is not ready in time, or its command failed, and those after
it were left alone; 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import NamedTuple
from urllib.parse import urlsplit

PAUSE_SECONDS = 0.1
PROBE_SECONDS = 2.0


class Times(NamedTuple):
    """How long a replica must be ready to count as ready, and how long that may take. Seconds."""

    settle: float
    timeout: float


class NotReady(Exception):
    """A replica is not ready in time, or could not be restarted."""


def is_ready(url: str) -> bool:
    """Return whether a replica answers /readyz with 200."""
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=PROBE_SECONDS) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def wait_ready(url: str, times: Times) -> None:
    """Return once a replica has been ready for a while without a
    break; raise NotReady if it takes long.
    """
    end = time.monotonic() + times.timeout
    since: float | None = None
    while True:
        now = time.monotonic()
        since = (now if since is None else since) if is_ready(url) else None
        if since is not None and now - since >= times.settle:
            return
        if now > end:
            raise NotReady(
                f"{url}: expected it to be ready within {times.timeout:g} s, found it is not"
            )
        time.sleep(PAUSE_SECONDS)


def command_for(template: str, url: str, number: int) -> str:
    """Return the command that restarts a replica, with {url}, {host},
    {port} and {n}, from 1, filled in.
    """
    parts = urlsplit(url)
    names = {"url": url, "host": parts.hostname, "port": parts.port or 80, "n": number}
    return template.format(**names)


def restart_all(urls: list[str], template: str, times: Times) -> None:
    """Restart each replica when all are ready; raise NotReady at the first that does
    not come back.
    """
    for number, url in enumerate(urls, 1):
        for each in urls:
            wait_ready(each, Times(0, times.timeout))
        command = command_for(template, url, number)
        print(f"{url}: {command}", flush=True)
        done = subprocess.run(command, shell=True, check=False)
        if done.returncode:
            raise NotReady(f"{url}: expected the command to end with 0, found {done.returncode}")
        begun = time.monotonic()
        wait_ready(url, times)
        print(f"{url}: ready again after {time.monotonic() - begun:.1f} s", flush=True)


def parsed(arguments: list[str]) -> argparse.Namespace:
    """Return the arguments; exits with 2 where they are wrong."""
    parser = argparse.ArgumentParser(description="Restart replicas one after the other.")
    parser.add_argument(
        "urls", nargs="+", metavar="URL", help="a replica itself, not the load balancer"
    )
    parser.add_argument(
        "--restart", required=True, help="the command, with {url}, {host}, {port} and {n}"
    )
    parser.add_argument(
        "--settle", type=float, default=3.0, help="seconds that a replica must stay ready (3)"
    )
    parser.add_argument(
        "--timeout", type=float, default=300.0, help="seconds until it must be ready (300)"
    )
    found = parser.parse_args(arguments)
    try:
        for number, url in enumerate(found.urls, 1):
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
                parser.error(f"expected http://HOST:PORT, found {url!r}")
            command_for(found.restart, url.rstrip("/"), number)
    except (KeyError, IndexError, ValueError) as error:
        parser.error(
            f"--restart: expected {{url}}, {{host}}, {{port}} or {{n}} in braces, found {error}"
        )
    return found


def main(arguments: list[str]) -> int:
    """Run the command line; return the exit status."""
    found = parsed(arguments)
    urls = [url.rstrip("/") for url in found.urls]
    try:
        restart_all(urls, found.restart, Times(found.settle, found.timeout))
    except NotReady as error:
        print(f"rolling_restart: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
