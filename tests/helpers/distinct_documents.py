"""Documents for `xylem learn`: each is unlike the others, so that all may judge."""

import random

from tests.helpers.combined_models import documents


def distinct_documents(n: int, seed: int) -> list[dict[str, object]]:
    """Documents with so many words of a few documents that hardly two are alike."""
    draw = random.Random(seed)
    return [
        {
            **row,
            "text": " ".join([str(row["text"]), *(f"w{draw.randrange(300)}" for _ in "x" * 15)]),
        }
        for row in documents(n, seed)
    ]
