"""Make the client's fields of a training from its job: `python -m tests.training_fields`.

The client imports nothing of the service, so its list of fields is a file of its own.
tests/contract/test_tree.py compares it with what this script makes.
"""

import subprocess
import sys
from pathlib import Path
from textwrap import fill
from typing import Any

from xylem.admin.jobs.requests import TrainingJob

FILE = Path(__file__).resolve().parents[1] / "service" / "xylem" / "client" / "training_fields.py"

NAMED_BY_THE_CALL = ("model", "trainer", "data")
"""Fields that are arguments of `train` by themselves."""

NO_KEYWORD = ("from",)
"""Fields whose names Python has words for: they are passed as `**{"from": "tags@1"}`."""

HEAD = '''"""The fields of a training, made from the job's by `python -m tests.training_fields`."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class TrainingFields(TypedDict, total=False):
    """Fields of a training; the server has defaults for those left out, or None."""

'''

TYPES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
    "object": "Mapping[str, Any]",
}


def type_of(schema: dict[str, Any]) -> str:
    """Return the Python type of what a JSON Schema describes."""
    if "$ref" in schema:
        return TYPES["object"]
    if "enum" in schema:
        return f"Literal[{', '.join(map(repr, schema['enum']))}]"
    if "items" in schema:
        return f"Sequence[{type_of(schema['items'])}]"
    if "type" in schema:
        return TYPES[schema["type"]]
    alternatives = schema.get("anyOf") or schema["oneOf"]
    return " | ".join(dict.fromkeys(type_of(alternative) for alternative in alternatives))


def source() -> str:
    """Return the source of the client's module, formatted."""
    lines = [HEAD]
    for name, schema in TrainingJob.model_json_schema()["properties"].items():
        if name in (*NAMED_BY_THE_CALL, *NO_KEYWORD):
            continue
        alternatives = [*type_of(schema).split(" | "), "None"]
        lines.append(f"    {name}: {' | '.join(dict.fromkeys(alternatives))}\n")
        if "description" in schema:
            indent = " " * 4
            text = f'"""{schema["description"]}"""'
            lines.append(f"{fill(text, 100, initial_indent=indent, subsequent_indent=indent)}\n")
    lines.append("    idempotency_key: str | None\n")
    command = [sys.executable, "-m", "ruff", "format", "-q", "--stdin-filename", str(FILE), "-"]
    return subprocess.check_output(command, input="".join(lines), text=True)


if __name__ == "__main__":
    FILE.write_text(source())
