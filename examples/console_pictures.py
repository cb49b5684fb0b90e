"""Make the pictures of docs/console.md from the running page: `python -m
examples.console_pictures URL KEY`.

The server is that of `XYLEM_FEEDBACK_ROWS=1 make console`, freshly made; versions are trained on
it. It needs chromium, and Pillow, which comes with matplotlib.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image
from tests.helpers.browser import Browser

import xylem

ROWS = Path(__file__).parent / "debtags" / "test.jsonl.gz"
PICTURES = Path(__file__).resolve().parents[1] / "docs" / "console"
BYTES_MAX = 100_000
COLOURS = 128
LEARNT = (400, 500, 600)  # rows of each run
QUICK = {"near": False, "parameters": {"features.kind": "tfidf"}}
WAITING = 25
TEXT = (
    "A fast text editor for the terminal, with syntax highlighting for many programming "
    "languages, multiple "
    "cursors and a built-in file manager."
)


def keep(browser: Browser, name: str) -> None:
    """Write a picture. Raises where it is too large."""
    file = PICTURES / f"{name}.png"
    browser.picture(file)
    with Image.open(file) as picture:
        picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)
    assert file.stat().st_size <= BYTES_MAX, f"{file}: {file.stat().st_size} bytes"


def predict(browser: Browser) -> None:
    for text in (
        TEXT[:30],
        TEXT[:60],
        TEXT,
    ):  # first requests are slower, and the picture shows the time
        browser.fill("#text", text)
        time.sleep(1)
    browser.wait(
        "!document.querySelector('#why').hidden && document.querySelector('.threshold').textContent"
    )
    second = "document.querySelector('#predictions li:nth-child(2) .name').textContent"
    browser.click("#predictions li:nth-child(2) .label-name")
    browser.wait(f"document.querySelector('#why-heading').textContent === 'Why ' + {second}")
    browser.run("document.activeElement.blur()")
    keep(browser, "predict")


def correct(browser: Browser) -> None:
    """Send what the page says of some texts, as it is: thresholds move."""
    for word in ("editor", "viewer", "converter", "indexer", "formatter"):
        browser.fill("#text", f"A text {word} for plain text files")
        browser.wait("document.querySelector('#predict-status').textContent.includes('threshold')")
        browser.wait("!document.querySelector('#moved *')")
        browser.click("#send-correction")
        browser.wait("document.querySelector('#moved *')")


def train(browser: Browser, key: str) -> None:
    browser.press("Train")
    browser.fill("#notice input", key)
    browser.click("#notice button")
    browser.fill("#train-data", "file:train.jsonl.gz")
    browser.fill("#train-valid", "file:test.jsonl.gz")
    browser.press("Parameters (their defaults are good)")
    trees = (
        "[...document.querySelectorAll('#parameters label')].find(e => e.textContent === "
        "'trees').htmlFor"
    )
    browser.fill(f"#{browser.run(trees)}", "5")
    browser.press("Parameters (their defaults are good)")
    browser.click("#train-submit")
    browser.wait("document.querySelector('#verdict')")
    browser.run("document.activeElement.blur(), scrollTo(0, 0)")
    keep(browser, "train")


def versions(browser: Browser) -> None:
    browser.press("Versions")
    browser.wait(
        "document.querySelector('#label-differences td') && document.querySelector('#history td')"
    )
    browser.look(1000, 420)
    keep(browser, "versions")
    browser.look(1000, 900)
    browser.run("document.querySelector('#compare-heading').scrollIntoView()")
    keep(browser, "compare")


def label(browser: Browser) -> None:
    browser.press("Labels")
    browser.fill("#version", "version:1")
    browser.fill("#page-labels input[type=search]", "works-with::text")
    browser.wait("document.querySelectorAll('#page-labels tbody tr').length === 1")
    browser.click("#page-labels tbody .label-name")
    browser.wait(
        "document.querySelector('dialog .bar-adds') && document.querySelector('dialog svg.chart')"
    )
    browser.look(1000, 1000)
    keep(browser, "label")
    browser.click("dialog .close")


def learn(client: xylem.Client) -> None:
    """Run a recipe three times, each time with more rows, and leave some corrections waiting."""
    with gzip.open(ROWS, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    labels = sorted({label for row in rows for label in row["labels"]})
    names = [f"{label},{label.replace('::', ' ').replace('-', ' ')}" for label in labels]
    client.upload("tags.csv", "\n".join(["uri,label_en", *names, ""]).encode())
    source = {"file": "documents.jsonl"}
    recipe = {"vocabulary": "tags.csv", "language": "en", "sources": [source]}
    for n_rows in LEARNT:
        content = "".join(f"{json.dumps(row)}\n" for row in rows[:n_rows])
        client.upload(source["file"], content.encode())
        client.set_recipe("packages", {**recipe, **QUICK, "cron": "0 3 * * 0"})
        assert client.wait(client.learn("packages").id).state == "succeeded"
    for number, row in enumerate(rows[LEARNT[-1] : LEARNT[-1] + WAITING]):
        event = {"event_id": f"desk-{number}", "instance": {"text": row["text"]}}
        client.feedback("packages", [{**event, "labels": row["labels"]}])


def learning(browser: Browser, url: str, key: str) -> None:
    with xylem.Client(url, key) as client:
        learn(client)
    browser.open(f"{url}#/learning")
    browser.wait("$('#model').value")
    browser.fill("#model", "packages")
    browser.wait(f"$('#waiting').textContent.includes('{WAITING} corrections')")
    browser.wait("$('#runs svg') && $('#corrections li')")
    browser.run("document.activeElement.blur(), scrollTo(0, 0)")
    browser.look(1200, 1000)
    keep(browser, "learning")


def main() -> None:
    url, key = sys.argv[1:3]
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as profile, Browser(Path(profile)) as browser:
        browser.look(1000, 700)
        browser.open(url)
        predict(browser)
        correct(browser)
        train(browser, key)
        versions(browser)
        label(browser)
        browser.press("Health")
        browser.wait("document.querySelector('#figures svg')")
        browser.look(1000, 560)
        keep(browser, "health")
        learning(browser, url, key)


if __name__ == "__main__":
    main()
