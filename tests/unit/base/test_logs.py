"""Log lines: an event is one line whatever it holds; nobody who logs waits, and
nothing is raised.
"""

import errno
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from xylem.base import logs
from xylem.base.logs import JsonHandler, Request, encode_fields, log, log_requests

READ = 64 << 10
UNSAFE = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, 0x202E, 0x2066)]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The file that lines are written to in the place of standard error."""
    path = tmp_path / "log"
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    monkeypatch.setattr(logs, "_STDERR", number)
    monkeypatch.setattr(logs, "_n_dropped", 0)
    yield path
    os.close(number)
    logs._is_torn = False


@pytest.mark.parametrize("character", UNSAFE, ids=ascii)
def test_no_character_ends_a_line_or_commands_a_terminal(lines: Path, character: str) -> None:
    text = f"a{character}b\u00e9\u4e2d"
    log(logging.ERROR, "event", detail=text)
    record = logging.LogRecord("library", logging.ERROR, __file__, 1, "%s", (text,), None)
    JsonHandler().emit(record)
    log_requests([Request(1.0, "r1", encode_fields(path=text), 0.001)])
    written = lines.read_bytes().decode()
    assert character == "\n" or character not in written
    assert [line.count("b\u00e9\u4e2d") for line in written.split("\n")] == [1, 1, 1, 0]
    event, message, request = map(json.loads, written.split("\n")[:3])
    assert (event["detail"], message["message"], request["path"]) == (text, text, text)


class Unfit:
    def __str__(self) -> str:
        return "\udcff"


UNUSUAL = {
    "a surrogate": "\udcff",
    "a path that is not UTF-8": Path("/store/\udcff"),
    "a huge integer": 1 << 200,
    "keys that are no text": {1: 2},
    "nan": float("nan"),
    "an object whose text is not UTF-8": Unfit(),
    "a set": {"a", "b"},
}


@pytest.mark.parametrize("value", UNUSUAL.values(), ids=UNUSUAL.keys())
def test_whatever_is_logged_is_a_line(lines: Path, value: Any) -> None:
    log(logging.ERROR, "event", value=value)
    log(logging.ERROR, "next", value=1)
    event, following = map(json.loads, lines.read_text().splitlines())
    assert (event["event"], following["event"]) == ("event", "next")
    assert event["time"].endswith("+00:00")


@pytest.mark.parametrize(
    ("text", "arguments"), [("%d", ("x",)), ("%s %s", (1,)), ("%s", ())], ids=ascii
)
def test_a_record_whose_arguments_do_not_fit_is_a_line(
    lines: Path, text: str, arguments: Any
) -> None:
    JsonHandler().emit(
        logging.LogRecord("library", logging.ERROR, __file__, 1, text, arguments, None)
    )
    assert json.loads(lines.read_text())["message"].startswith("%")


def test_a_longer_message_of_a_library_is_cut(lines: Path) -> None:
    record = logging.LogRecord(
        "library", logging.ERROR, __file__, 1, "x" * (logs.MESSAGE_MAX + 1), (), None
    )
    JsonHandler().emit(record)
    assert len(json.loads(lines.read_text())["message"]) == logs.MESSAGE_MAX


@pytest.mark.parametrize("n_taken", [0, 1, 40])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EPIPE, errno.EIO, errno.EAGAIN])
def test_a_write_that_fails_costs_its_line_and_no_other(
    lines: Path, monkeypatch: pytest.MonkeyPatch, code: int, n_taken: int
) -> None:
    """The n-th write takes some bytes, and the one after it fails."""
    write = os.write
    for n in range(6):
        before = len(lines.read_bytes())
        calls = iter(range(100))

        def fail(number: int, data: bytes, n: int = n, calls: Iterator[int] = calls) -> int:
            call = next(calls)
            if call == n and n_taken:
                return write(number, data[:n_taken])
            if call == n + bool(n_taken):
                raise OSError(code, os.strerror(code))
            return write(number, data)

        monkeypatch.setattr(logs.os, "write", fail)
        dropped = logs.lines_dropped()
        for number in range(6):
            log(logging.ERROR, "event", number=number)
        monkeypatch.setattr(logs.os, "write", write)
        parts = lines.read_bytes()[before:].split(b"\n")
        numbers = [json.loads(part)["number"] for part in parts if part.endswith(b"}")]
        assert numbers == [number for number in range(6) if number != n]
        assert logs.lines_dropped() - dropped == 1
        log(logging.ERROR, "last")  # whatever was torn, a line begins after it


def run_script(script: str, **options: Any) -> subprocess.Popen[bytes]:
    preamble = (
        "import logging, sys, warnings\nfrom xylem.base.logs import *\n"
        "from xylem.base import logs\nconfigure('info')\nwrite_in_background()\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", preamble + script], stdout=subprocess.PIPE, **options
    )


N_LINES = 20_000


def test_lines_without_a_reader_are_dropped_and_counted() -> None:
    reading, writing = os.pipe()
    process = run_script(
        f"for number in range({N_LINES}): log(logging.INFO, 'event', number=number, text='x' "
        "* 100)\n"
        "warnings.warn('a warning'); print('a print', file=sys.stderr)\n"
        "logging.getLogger('library').error('an error')\n"
        "print(lines_dropped())",
        stderr=writing,
    )
    os.close(writing)
    assert process.stdout is not None
    assert process.wait(240) == 0
    dropped = int(process.stdout.read())
    process.stdout.close()
    parts = []
    while part := os.read(reading, READ):
        parts.append(part)
    os.close(reading)
    *written, torn = b"".join(parts).split(b"\n")
    numbers = [json.loads(line)["number"] for line in written]
    assert numbers == sorted(numbers)
    assert torn == b"" or torn.startswith(b'{"time"')
    assert 0 < len(numbers) <= N_LINES - logs.WAITING_MAX
    # as many lines wait as may, and as many are being written
    assert dropped >= N_LINES - len(numbers) - 2 * logs.WAITING_MAX - 100


def test_what_was_logged_before_the_end_is_written() -> None:
    process = run_script(
        "for number in range(500): log(logging.INFO, 'event', number=number)\nraise "
        "ValueError('last words')",
        stderr=subprocess.PIPE,
    )
    _, written = process.communicate(timeout=240)
    assert process.returncode == 1
    events = [json.loads(line)["number"] for line in written.splitlines() if line.startswith(b"{")]
    assert events == list(range(500))
    assert written.endswith(b"ValueError: last words\n")


def test_lines_of_processes_that_share_a_full_pipe_are_whole() -> None:
    """Also where another process made the pipe one that does not block, and where
    lines are long.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    script = (
        "import time\n"
        "for number in range(3000):\n"
        "    log(logging.INFO, 'event', number=number, text='x' * (number % 300))\n"
        "    if number % 100 == 0: time.sleep(0.001)\n"
        "while logs._waiting.qsize(): time.sleep(0.01)\n"
        "print(lines_dropped())"
    )
    processes = [run_script(script, stderr=writing) for _ in range(3)]
    os.close(writing)
    parts = []
    while part := os.read(reading, 2000):
        parts.append(part)
    os.close(reading)
    outputs = [process.communicate(timeout=240)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    lines = [line for line in b"".join(parts).split(b"\n") if line]
    assert all(json.loads(line)["event"] == "event" for line in lines)
    assert len(lines) + sum(map(int, outputs)) == 9000
