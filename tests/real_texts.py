"""Texts of the shipped data set, for tests that want real language."""

from pathlib import Path

from service.datasets import read_dataset

_EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "debtags"


def _texts(name: str) -> list[str]:
    found = read_dataset(_EXAMPLES / name).texts
    assert found is not None
    return found


TEXTS = _texts("train.jsonl.gz")[:1500]
TEXTS_UNSEEN = _texts("test.jsonl.gz")[:300]
