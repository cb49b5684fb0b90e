"""Functions by which schemathesis writes bodies of the content types of xylem.

schemathesis loads this module (SCHEMATHESIS_HOOKS), in an environment without xylem.
"""

import json
from typing import Any

import schemathesis


@schemathesis.serializer("application/x-tar")
def write_archive(_: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else repr(value).encode("utf-8", "replace")


@schemathesis.serializer("application/x-ndjson")
def write_lines(_: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode() + b"\n"
