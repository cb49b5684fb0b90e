"""Texts of the shipped data set, for tests that need real language."""

import gzip
import itertools
import json
from pathlib import Path

_EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "debtags"


def _texts(name: str, n: int) -> list[str]:
    with gzip.open(_EXAMPLES / name) as lines:
        return [json.loads(line)["text"] for line in itertools.islice(lines, n)]


TEXTS = _texts("train.jsonl.gz", 1500)
TEXTS_UNSEEN = _texts("test.jsonl.gz", 300)
