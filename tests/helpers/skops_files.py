"""Vectorizers that skops 0.16 wrote: `python -m tests.helpers.skops_files` rewrites
tests/golden/skops.

Tests read the files without skops, and fit the same vectorizers again to compare.
"""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "skops"

TEXTS = [
    "a history of the Hanseatic League, its ports and the ships that sailed to them",
    "stamps and coins of the league: a catalogue for collectors",
    "the ports of the Baltic Sea, and how ships are built there",
    "naïve Bayes: a catalogue of methods for texts",
    "collectors' coins",
]

ACCEPTED: dict[str, Callable[[], Any]] = {
    "plain": TfidfVectorizer,
    "cut": lambda: TfidfVectorizer(max_features=9, sublinear_tf=True),
    "english": lambda: TfidfVectorizer(stop_words="english", norm="l1", smooth_idf=False),
    "listed": lambda: TfidfVectorizer(
        stop_words=["the", "of"], ngram_range=(1, 2), min_df=2, norm=None
    ),
    "given": lambda: TfidfVectorizer(vocabulary={"the": 1, "coins": 0, "ships": 2}, use_idf=False),
    "counts": lambda: CountVectorizer(
        analyzer="char_wb", ngram_range=(3, 3), lowercase=False, max_features=30
    ),
}
"""Vectorizers that can be read, by the names of their files."""

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "tokenizer": (
        lambda: TfidfVectorizer(tokenizer=sorted, token_pattern=None),
        "tokenizer to be JsonNode",
    ),
    "pairs": (
        lambda: TfidfVectorizer(stop_words="english", ngram_range=(1, 2), max_features=3),
        "stop_words to be a list, as n-grams or a given vocabulary depend on them",
    ),
}
"""Vectorizers that are refused, and the message."""


def write_all() -> None:
    """Write every file; that of `plain` is not compressed, as skops does by default."""
    import skops.io

    FOLDER.mkdir(parents=True, exist_ok=True)
    makers = {**ACCEPTED, **{name: make for name, (make, _) in REFUSED.items()}}
    for name, make in makers.items():
        packed = (
            {} if name == "plain" else {"compression": zipfile.ZIP_DEFLATED, "compresslevel": 9}
        )
        skops.io.dump(make().fit(TEXTS), FOLDER / f"{name}.skops", **packed)


if __name__ == "__main__":
    write_all()
