"""What a sentence encoder costs, and what it gains: `python -m benchmarks.encoders DIR FOLDER`.

DIR is a data set of texts, with `train.jsonl.gz` and `test.jsonl.gz`, and FOLDER an encoder. Times
are of one thread of this machine: the processor's, and the clock's, which other programs slow down.
"""

import argparse
import gzip
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import xylem
from xylem.base.settings import Limits
from xylem.base.stages import StageTimings
from xylem.extras.encoder.encoder import Encoder, read_encoder
from xylem.serving.dialects.dialect import Body, Longer
from xylem.serving.dialects.predict.dialect import PREDICT
from xylem.serving.live.opening import serve_model

TOKENS = (20, 64, 128)
REQUEST_CHARACTERS = 60
CALLS = 300
TEST_ROWS = 2000


def main() -> None:
    """Print one line of JSON for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("encoder", type=Path)
    parser.add_argument("--rows", type=int, default=12_000, help="training rows that are used")
    parser.add_argument("--dims", type=int, default=128)
    parser.add_argument("--weight", type=float, default=0.5)
    arguments = parser.parse_args()
    _, encoder = read_encoder(arguments.encoder)
    for n_tokens in TOKENS:
        report(tokens=n_tokens, **times_of(encoder, "a " * (n_tokens - 2)))
    train, test = (
        rows_of(arguments.data / f"{part}.jsonl.gz", n_rows)
        for part, n_rows in (("train", arguments.rows), ("test", TEST_ROWS))
    )
    words = xylem.train(*train, progress=False)
    report(features="words", **figures_of(words, test))
    start = time.perf_counter()
    options = {"vectors_dims": arguments.dims, "vectors_weight": arguments.weight}
    both = xylem.train(*train, encoder=arguments.encoder, progress=False, **options)
    seconds = round(time.perf_counter() - start, 1)
    report(features="words and vectors", seconds=seconds, **figures_of(both, test))
    texts = [text for text in test[0] if len(text) >= REQUEST_CHARACTERS][:CALLS]
    report(request_characters=REQUEST_CHARACTERS, **request_ms(both, texts))


def report(**facts: Any) -> None:
    """Print a line of JSON."""
    print(json.dumps(facts), flush=True)


def rows_of(file: Path, n_rows: int) -> tuple[list[str], list[list[str]]]:
    """Return the texts and labels of some rows of a file, at equal distances."""
    with gzip.open(file, "rt") as lines:
        rows = list(map(json.loads, lines))
    rows = rows[:: max(1, len(rows) // n_rows)][:n_rows]
    return [row["text"] for row in rows], [row["labels"] for row in rows]


def times_of(encoder: Encoder, text: str) -> dict[str, float]:
    """Return the milliseconds of a text, and how many a second that is for one processor."""
    encoder.encode(text)
    clock, processor = [], []
    for _ in range(CALLS):
        starts = time.perf_counter(), time.thread_time()
        encoder.encode(text)
        clock.append(time.perf_counter() - starts[0])
        processor.append(time.thread_time() - starts[1])
    return {
        "clock_ms": round(1e3 * median(clock), 2),
        "fastest_ms": round(1e3 * min(clock), 2),
        "processor_ms": round(1e3 * median(processor), 2),
        "texts_a_second": round(1 / median(processor), 1),
    }


def figures_of(model: xylem.Model, test: tuple[list[str], list[list[str]]]) -> dict[str, float]:
    """Return P@1, P@3 and P@5."""
    figures = model.evaluate(*test)
    return {name: round(float(figures[name]), 2) for name in ("P@1", "P@3", "P@5")}


def request_ms(model: xylem.Model, texts: list[str]) -> dict[str, float]:
    """Return the median milliseconds of a request of predict in this process."""
    served = serve_model(model._opened)
    clock, processor = [], []
    for text in texts:
        body = Body(json.dumps({"instances": [{"text": text[:REQUEST_CHARACTERS]}]}).encode())
        starts = time.perf_counter(), time.thread_time()
        reply = PREDICT.answer(body, served, Limits(), StageTimings())
        assert isinstance(reply, Longer)
        reply.answer(np.zeros(1, np.uint8))
        clock.append(time.perf_counter() - starts[0])
        processor.append(time.thread_time() - starts[1])
    return {
        "clock_p50_ms": round(1e3 * median(clock), 2),
        "processor_p50_ms": round(1e3 * median(processor), 2),
    }


if __name__ == "__main__":
    main()
