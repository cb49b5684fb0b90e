"""What `make demo` runs: train, evaluate, publish, serve, ask over
HTTP, stop. Leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from rich.console import Console
from rich.table import Table

DATA = Path(__file__).resolve().parent / "debtags"
XYLEM = Path(sys.executable).with_name("xylem")
READY_SECONDS_MAX = 600
STOP_SECONDS_MAX = 30

QUESTIONS = [
    "a fast text editor for the terminal with syntax highlighting and multiple cursors",
    "real-time strategy game in space, play against friends over the network",
    "Python bindings for a library that reads and writes JPEG and PNG pictures",
    "command line tool to compare two directories and keep them in sync over ssh",
    "mail server with spam filter and support for IMAP",
    "draw chemical molecules in 3D and compute their energies",
]
"""Descriptions of programs, typed as a person would: none of them is in the data set."""

console = Console(highlight=False)


def heading(text: str) -> None:
    console.print(f"\n[bold]{text}[/bold]")


def xylem(*arguments: str) -> None:
    """Run a command as a user would, showing it first."""
    shown = [
        os.path.relpath(argument) if argument.startswith("/") else argument
        for argument in arguments
    ]
    console.print(f"$ xylem {shlex.join(shown)}", style="dim", markup=False)
    done = subprocess.run([XYLEM, *arguments], check=False)
    if done.returncode:
        raise SystemExit(f"the command failed with status {done.returncode}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server(store: Path, log: Path) -> Iterator[str]:
    """Run `xylem serve` while the block runs; yield its address once it is ready."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [XYLEM, "serve", "--store", store, "--port", str(port)]
    console.print(f"$ xylem serve --port {port}", style="dim")
    start = time.perf_counter()
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as process,
    ):
        try:
            wait_until_ready(url, process, log)
            console.print(f"ready after {time.perf_counter() - start:.1f} s at {url}")
            yield url
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                status = process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                raise SystemExit(
                    f"the server did not stop within {STOP_SECONDS_MAX} s of SIGTERM"
                ) from None
    console.print(f"server stopped, status {status}")


def wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + READY_SECONDS_MAX
    while time.monotonic() < end and process.poll() is None:
        try:
            with urlopen(f"{url}/readyz", timeout=5):
                return
        except (URLError, OSError):
            time.sleep(0.1)
    raise SystemExit(
        f"the server did not become ready; its log ends with:\n{log.read_text()[-2000:]}"
    )


def post(url: str, body: bytes, content_type: str) -> tuple[bytes, float]:
    """Return the answer and the milliseconds it took."""
    request = Request(url, body, {"content-type": content_type})
    start = time.perf_counter()
    with urlopen(request, timeout=60) as response:
        answer: bytes = response.read()
    return answer, 1000 * (time.perf_counter() - start)


def ask(url: str) -> None:
    """Send the questions, one request each, and print what the model says to each."""
    table = Table(show_lines=True)
    table.add_column("text", ratio=3)
    table.add_column("labels, with their scores", ratio=3)
    table.add_column("ms", justify="right")
    for text in QUESTIONS:
        body = json.dumps({"instances": [{"text": text}], "top_r": 4}).encode()
        answer, ms = post(f"{url}/v1/models/debtags/predict", body, "application/json")
        labels: list[dict[str, Any]] = json.loads(answer)["predictions"][0]["labels"]
        lines = "\n".join(f"{label['score']:.2f}  {label['label']}" for label in labels)
        table.add_row(text, lines, f"{ms:.1f}")
    console.print(table)


def ask_batch(url: str) -> None:
    """Send the same questions as one stream of lines."""
    lines = "".join(json.dumps({"text": text}) + "\n" for text in QUESTIONS).encode()
    answer, ms = post(f"{url}/v1/models/debtags/batch", lines, "application/x-ndjson")
    answers = [json.loads(line) for line in answer.splitlines()]
    console.print(f"{len(answers)} lines in, {len(answers)} lines out, {ms:.1f} ms; the first:")
    console.print(answer.splitlines()[0].decode(), markup=False, soft_wrap=True)


def stop(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> None:
    signal.signal(signal.SIGTERM, stop)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="xylem-demo-") as directory:
        store = Path(directory) / "store"
        os.environ["XYLEM_STORE"] = str(store)
        heading("1. Train a label tree on descriptions of Debian packages, and publish it")
        xylem("train", "label-tree", "--data", str(DATA / "train.jsonl.gz"), "--model", "debtags")
        heading("2. Evaluate it on packages it has not seen")
        xylem("evaluate", "debtags", "--data", str(DATA / "test.jsonl.gz"))
        heading("3. Serve it")
        with server(store, Path(directory) / "serve.log") as url:
            heading("4. Ask it, one text a request")
            ask(url)
            heading("5. Ask it all at once, as a stream")
            ask_batch(url)
            heading("6. Stop it")
    console.print(f"\nDone in {time.perf_counter() - start:.0f} s. The README says how to go on.")
    console.print("`make console` serves this model with a page to try it: http://127.0.0.1:8080/")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
