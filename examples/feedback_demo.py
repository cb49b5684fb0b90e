"""Macro-F as feedback arrives, over HTTP: `.venv/bin/python examples/feedback_demo.py`; draws a plot.

A label tree is trained on the example's training rows. Half of its test rows come in as feedback, in a random
order; now and then the other half is predicted at the thresholds of the moment.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import tempfile
from pathlib import Path
from typing import Any

from demo import DATA, console, heading, post, server, xylem

STEPS = (0, 10, 30, 100, 300, 1000, 2000, 3000, 4500, 6000, 10_000)
BLOCK = 64
MODEL = "debtags"
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 360, 60, 50, 30


def rows() -> list[dict[str, Any]]:
    with gzip.open(DATA / "test.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


def macro_f(url: str, held_out: list[dict[str, Any]], query: str, labels: set[str]) -> float:
    """Macro-F over `labels`, percent; a label never true nor predicted counts 0, as in scikit-learn."""
    body = "".join(json.dumps({"text": row["text"]}) + "\n" for row in held_out).encode()
    answer, _ = post(f"{url}/v1/models/{MODEL}/batch?{query}", body, "application/x-ndjson")
    hits, marks = dict.fromkeys(labels, 0), dict.fromkeys(labels, 0)
    for row, line in zip(held_out, answer.splitlines(), strict=True):
        predicted = {label["label"] for label in json.loads(line)["labels"]}
        true = set(row["labels"]) & labels
        for label in true | predicted:
            hits[label] += label in true and label in predicted
            marks[label] += (label in true) + (label in predicted)
    return 100 * sum(2 * hits[label] / marks[label] for label in labels if marks[label]) / len(labels)


def send(url: str, events: list[dict[str, Any]]) -> None:
    for first in range(0, len(events), BLOCK):
        body = json.dumps({"events": events[first : first + BLOCK]}).encode()
        answer, _ = post(f"{url}/v1/models/{MODEL}/feedback", body, "application/json")
        results = {result["result"] for result in json.loads(answer)["results"]}
        if not results <= {"applied", "rejected"}:  # rejected: a label that the training rows do not have
            raise SystemExit(f"expected new events, found {results}")


def learn(url: str, labels: set[str], seed: int) -> tuple[list[tuple[int, float]], dict[str, float]]:
    """Return macro-F after so many events, and of fixed rules."""
    found = [row for row in rows() if set(row["labels"]) <= labels]
    random.Random(seed).shuffle(found)
    held_out, coming = found[::2], found[1::2]
    events = [
        {"event_id": f"row {i}", "instance": {"text": row["text"]}, "labels": row["labels"]}
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
        if done:
            points.append((done, macro_f(url, held_out, "top_r=100&threshold=tuned", labels)))
            console.print(f"{done:>13} events: {points[-1][1]:5.2f}")
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
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12"><rect width="100%" height="100%" fill="white"/>',
        text(f"{LEFT},18", "Macro-F on held-out rows, percent, as feedback arrives"),
        text(f"{WIDTH // 2},{HEIGHT - 8}", "events of feedback", 'text-anchor="middle"'),
    ]
    for value in range(0, int(most_y) + 1, 5):
        parts.append(f'<polyline points="{at(0, value)} {at(points[-1][0], value)}" stroke="#ddd"/>')
        parts.append(text(at(0, value), f"{value}", 'text-anchor="end" dx="-6" dy="4"'))
    for events in [events for events, _ in points[1::2] if events < 0.8 * points[-1][0]] + [points[-1][0]]:
        parts.append(text(at(events, 0), f"{events}", 'text-anchor="middle" dy="16"'))
    for name, value in fixed.items():
        ends = f"{at(0, value)} {at(points[-1][0], value)}"
        parts.append(f'<polyline points="{ends}" stroke="#888" stroke-dasharray="5 4"/>')
        parts.append(text(at(0, value), f"{name}: {value:.1f}", 'dx="8" dy="-4" fill="#555"'))
    line = " ".join(at(*point) for point in points)
    parts.append(f'<polyline points="{line}" fill="none" stroke="#06c" stroke-width="2"/>')
    last = f"{points[-1][1]:.1f}"
    parts.append(text(at(*points[-1]), f"tuned: {last}", 'text-anchor="end" dy="-8" fill="#06c"'))
    return "\n".join([*parts, "</svg>\n"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("feedback.svg"))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="xylem-demo-") as directory:
        store = Path(directory) / "store"
        os.environ["XYLEM_STORE"] = str(store)
        heading("Train, and serve")
        xylem("train", "label-tree", "--data", str(DATA / "train.jsonl.gz"), "--model", MODEL)
        with gzip.open(DATA / "train.jsonl.gz", "rt") as lines:
            labels = {label for line in lines for label in json.loads(line)["labels"]}
        with server(store, Path(directory) / "serve.log") as url:
            heading(f"Macro-F over {len(labels)} labels, as feedback arrives")
            points, fixed = learn(url, labels, given.seed)
    given.out.write_text(plot(points, fixed))
    console.print(f"plot: {given.out}")


if __name__ == "__main__":
    main()
