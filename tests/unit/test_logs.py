from __future__ import annotations

import json
import logging
import subprocess
import sys

from service.logs import JsonFormatter


def formatted(**fields: object) -> dict[str, object]:
    record = logging.LogRecord("xylem", logging.INFO, __file__, 1, "request", None, None)
    if fields:
        record.fields = fields
    return json.loads(JsonFormatter().format(record))


def test_an_event_and_its_fields() -> None:
    line = formatted(status=200, path="/a\nb")
    assert (line["event"], line["level"], line["status"], line["path"]) == ("request", "info", 200, "/a\nb")
    assert str(line["time"]).endswith("+00:00")


def test_one_line_an_event() -> None:
    record = logging.LogRecord("other", logging.WARNING, __file__, 1, "two\n%s", ("lines",), None)
    text = JsonFormatter().format(record)
    assert "\n" not in text
    assert json.loads(text)["message"] == "two\nlines"


def test_an_exception_is_logged_without_its_message() -> None:
    try:
        raise ValueError("the payload")
    except ValueError as error:
        exc_info = (type(error), error, error.__traceback__)
    record = logging.LogRecord("xylem", logging.ERROR, __file__, 1, "failure", None, exc_info)
    text = JsonFormatter().format(record)
    line = json.loads(text)
    assert line["exception"] == "builtins.ValueError"
    assert line["frames"][0].startswith(__file__)
    assert "the payload" not in text


def test_what_is_below_the_level_is_not_logged() -> None:
    code = (
        "import logging; from service.logs import configure, log; configure('warning');"
        "log(logging.INFO, 'quiet'); log(logging.WARNING, 'loud', n=1)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    assert len(lines) == 1
    assert json.loads(lines[0])["event"] == "loud"
