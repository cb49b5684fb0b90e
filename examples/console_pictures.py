"""Make the pictures of docs/console.md from the running page: `python -m
examples.console_pictures URL KEY`.

The server is that of `make console`, freshly made; a version is trained on it. It needs chromium,
and Pillow, which comes with matplotlib.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from PIL import Image
from tests.helpers.browser import Browser

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "console"
BYTES_MAX = 100_000
COLOURS = 128
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


if __name__ == "__main__":
    main()
