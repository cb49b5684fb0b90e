"""Macro-F as feedback arrives, over HTTP: `.venv/bin/python
examples/feedback_demo.py`; draws a plot.

A label tree is trained on three fifths of the example's training rows. The others come in as
feedback, in a random order; now and then the test rows are predicted at the thresholds of the
moment.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import random
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from demo import DATA, console, heading, post, server, xylem

STEPS = (1, 10, 100, 300, 1000, 2000, 3000, 4500, 6000, 7500)
TICKS = (100, 1000, 3000, 6000)
BLOCK = 64
COMING_SHARE = 0.4
MODEL = "debtags"
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 360, 60, 50, 30


Row = dict[str, Any]


def rows(file: str) -> list[Row]:
    with gzip.open(DATA / file, "rt") as lines:
        return [json.loads(line) for line in lines]


def labels_of(found: Iterable[Row]) -> set[str]:
    return {label for row in found for label in row["labels"]}


def comes_later(row: Row) -> bool:
    """Whether a training row is kept for feedback: by its first word,
    which packages of one source share.

    So rows that are near copies of each other are on one side, and feedback is about texts that are
    new.
    """
    name = row["text"].split()[0].rstrip("0123456789.")
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") < COMING_SHARE * 2**32


def macro_f(url: str, held_out: list[Row], query: str, labels: set[str]) -> float:
    """Macro-F over `labels`, percent; a label never true nor
    predicted counts 0, as in scikit-learn.
    """
    body = "".join(json.dumps({"text": row["text"]}) + "\n" for row in held_out).encode()
    answer, _ = post(f"{url}/v1/models/{MODEL}/batch?{query}", body, "application/x-ndjson")
    hits, marks = dict.fromkeys(labels, 0), dict.fromkeys(labels, 0)
    for row, line in zip(held_out, answer.splitlines(), strict=True):
        predicted = {label["label"] for label in json.loads(line)["labels"]}
        true = set(row["labels"]) & labels
        for label in true | predicted:
            hits[label] += label in true and label in predicted
            marks[label] += (label in true) + (label in predicted)
    return (
        100 * sum(2 * hits[label] / marks[label] for label in labels if marks[label]) / len(labels)
    )


def send(url: str, events: list[Row]) -> None:
    for first in range(0, len(events), BLOCK):
        body = json.dumps({"events": events[first : first + BLOCK]}).encode()
        answer, _ = post(f"{url}/v1/models/{MODEL}/feedback", body, "application/json")
        results = {result["result"] for result in json.loads(answer)["results"]}
        if results != {"applied"}:
            raise SystemExit(f"expected new events, found {results}")


def learn(
    url: str, coming: list[Row], held_out: list[Row], labels: set[str]
) -> tuple[list[tuple[int, float]], dict[str, float]]:
    """Return macro-F after so many events, and of fixed rules."""
    events = [
        {
            "event_id": f"row {i}",
            "instance": {"text": row["text"]},
            "labels": sorted(labels & {*row["labels"]}),
        }
        for i, row in enumerate(coming)
    ]
    fixed = {
        "threshold 0.5": macro_f(url, held_out, "top_r=100&threshold=0.5", labels),
        "the best 5": macro_f(url, held_out, "top_r=5", labels),
    }
    for name, value in fixed.items():
        console.print(f"{name:>20}: {value:5.2f}")
    steps = [step for step in STEPS if step < len(events)] + [len(events)]
    done, points = 0, []
    for step in steps:
        send(url, events[done:step])
        done = step
        points.append((done, macro_f(url, held_out, "top_r=100&threshold=tuned", labels)))
        console.print(f"{f'events: {done}':>20}: {points[-1][1]:5.2f}")
    return points, fixed


def plot(points: list[tuple[int, float]], fixed: dict[str, float]) -> str:
    """Return an SVG of macro-F against events, the axis of events by its square root."""
    most_x = points[-1][0] ** 0.5
    most_y = 1.1 * max([value for _, value in points] + list(fixed.values()))

    def at(events: float, value: float) -> str:
        x = LEFT + (WIDTH - LEFT - 20) * events**0.5 / most_x
        return f"{x:.1f},{HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / most_y:.1f}"

    def text(place: str, words: str, more: str = "") -> str:
        x, y = place.split(",")
        return f'<text x="{x}" y="{y}" {more}>{words}</text>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" '
        'font-size="12"><rect width="100%" height="100%" fill="white"/>',
        text(f"{LEFT},18", "Macro-F on held-out rows, percent, as feedback arrives"),
        text(f"{WIDTH // 2},{HEIGHT - 8}", "events of feedback", 'text-anchor="middle"'),
    ]
    for value in range(0, int(most_y) + 1, 5):
        parts.append(
            f'<polyline points="{at(0, value)} {at(points[-1][0], value)}" stroke="#ddd"/>'
        )
        parts.append(text(at(0, value), f"{value}", 'text-anchor="end" dx="-6" dy="4"'))
    for events in (*TICKS, points[-1][0]):
        parts.append(text(at(events, 0), f"{events}", 'text-anchor="middle" dy="16"'))
    for name, value in fixed.items():
        ends = f"{at(0, value)} {at(points[-1][0], value)}"
        parts.append(f'<polyline points="{ends}" stroke="#888" stroke-dasharray="5 4"/>')
        parts.append(text(at(0, value), f"{name}: {value:.1f}", 'dx="8" dy="-4" fill="#555"'))
    line = " ".join(at(*point) for point in points)
    parts.append(f'<polyline points="{line}" fill="none" stroke="#06c" stroke-width="2"/>')
    for events, value in points:
        x, y = at(events, value).split(",")
        title = f"<title>{events} events: {value:.1f}</title>"
        parts.append(f'<circle cx="{x}" cy="{y}" r="3" fill="#06c">{title}</circle>')
    for (events, value), end in ((points[0], 'dx="8"'), (points[-1], 'text-anchor="end"')):
        parts.append(text(at(events, value), f"tuned: {value:.1f}", f'{end} dy="-8" fill="#06c"'))
    return "\n".join([*parts, "</svg>\n"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("feedback.svg"))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="xylem-demo-") as directory:
        store = Path(directory) / "store"
        os.environ["XYLEM_STORE"] = str(store)
        heading("Train on three fifths of the rows, and serve")
        found = rows("train.jsonl.gz")
        known = [row for row in found if not comes_later(row)]
        coming = [row for row in found if comes_later(row)]
        random.Random(given.seed).shuffle(coming)
        train = Path(directory) / "train.jsonl"
        train.write_text("".join(json.dumps(row) + "\n" for row in known))
        xylem("train", "label-tree", "--data", str(train), "--model", MODEL)
        labels = labels_of(known)
        with server(store, Path(directory) / "serve.log") as url:
            heading(f"Macro-F over {len(labels)} labels, percent, as feedback arrives")
            points, fixed = learn(url, coming, rows("test.jsonl.gz"), labels)
    given.out.write_text(plot(points, fixed))
    console.print(f"plot: {given.out}")


if __name__ == "__main__":
    main()
