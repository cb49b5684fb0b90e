from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

from service.base.logs import JsonHandler, log


def test_an_event_and_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    log(logging.INFO, "request", status=200, path="/a\nb")
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["level"], line["status"], line["path"]) == ("request", "info", 200, "/a\nb")
    assert line["time"].endswith("+00:00")


def test_a_record_of_a_library_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    record = logging.LogRecord("other", logging.WARNING, __file__, 1, "two\n%s", ("lines",), None)
    JsonHandler().emit(record)
    (text,) = capsys.readouterr().err.splitlines()
    line = json.loads(text)
    assert (line["event"], line["logger"], line["message"]) == ("message", "other", "two\nlines")


def test_an_exception_is_logged_without_its_message(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("the payload")
    except ValueError as error:
        log(logging.ERROR, "failure", error=error)
    text = capsys.readouterr().err
    line = json.loads(text)
    assert line["exception"] == "builtins.ValueError"
    assert line["frames"][0].startswith(__file__)
    assert "the payload" not in text


def test_what_is_below_the_level_is_not_logged() -> None:
    code = (
        "import logging; from service.base.logs import configure, log; configure('warning');"
        "log(logging.INFO, 'quiet'); logging.getLogger('a').info('quiet');"
        "log(logging.WARNING, 'loud', n=1); logging.getLogger('a').error('loud')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [json.loads(line)["level"] for line in done.stderr.splitlines()] == ["warning", "error"]
