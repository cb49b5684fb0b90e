"""Make the blocking client from the asynchronous one: `python -m tests.unasync`.

The method is that of httpcore (its `unasync.py`): functions in which the two differ have matching
names in `service/xylem/client/runtime.py` and in httpcore, and all other code is the same without
`async` and `await`. tests/contract/test_tree.py compares the result with the files.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CLIENT = ROOT / "service" / "xylem" / "client"
FROM, TO = CLIENT / "_async", CLIENT / "_sync"

REPLACED = (
    (
        r"The client for asyncio; (`.*`) makes the blocking client from it\.",
        r"The client for callers that block, made by \1.",
    ),
    (r"\n\s+Instances that take long to come should be [^.]* while it is read\.", ""),
    (
        r"The client for asyncio\.",
        "The client for callers that block, made from the client for asyncio.",
    ),
    (r"for one event loop\. Close it", "which threads may share. Close it"),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\baiter_stream\b", "iter_stream"),
    (r"\bhandle_async_request\b", "handle_request"),
    (r"\baclos(e|ing)\b", r"clos\1"),
    (r"\banext\b", "next"),
    (r"__a(enter|exit)__", r"__\1__"),
    (r"\basync_(\w)", r"\1"),
    (r"\bxylem\.client\._async\b", "xylem.client._sync"),
    (r"\bAsync([A-Z]\w*)", r"\1"),
)


def blocking(source: str) -> str:
    """Return the source of a module of the blocking client, formatted."""
    for pattern, replacement in REPLACED:
        source = re.sub(pattern, replacement, source)
    fixes = ["check", "-q", "--fix", "--unsafe-fixes", "--select", "I,UP028,SIM117"]
    for words in (fixes, ["format", "-q"]):
        command = [
            sys.executable,
            "-m",
            "ruff",
            *words,
            "--stdin-filename",
            str(TO / "module.py"),
            "-",
        ]
        source = subprocess.check_output(command, input=source, text=True)
    return source


def modules() -> dict[Path, str]:
    """Return the source of each module of the blocking client, by its file."""
    return {TO / file.name: blocking(file.read_text()) for file in sorted(FROM.glob("*.py"))}


if __name__ == "__main__":
    for path, content in modules().items():
        path.write_text(content)
