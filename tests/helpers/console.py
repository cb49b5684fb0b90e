"""The console of a server in a browser."""

import json
from pathlib import Path
from typing import Any

from tests.helpers.browser import Browser
from tests.helpers.servers import ServerProcess

WORDS = ("red", "green", "blue", "black", "white", "brown")


def rows(names: tuple[str, ...], n: int = 240) -> bytes:
    """Lines of a data set in which a word means a label."""
    k = len(names)
    lines = (
        {"text": f"a {WORDS[i % k]} thing {i % 7}", "labels": [names[i % k]]} for i in range(n)
    )
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


class Console(Browser):
    """The console of a server, in a browser."""

    def __init__(self, directory: Path, server: ServerProcess) -> None:
        super().__init__(directory / "profile")
        self.directory, self.server = directory, server
        self.look()
        self.open(f"{server.url}/")

    def ask(self, path: str) -> Any:
        return self.server.ask("GET", f"/v1/models/colours{path}")[1]

    def newest_job(self) -> Any:
        return self.server.admin("GET", "/jobs")[1]["jobs"][0]

    def go(self, page: str) -> None:
        self.run(f"location.hash = '#/{page}'")
        self.wait(f"!$('#page-{page}').hidden && $('#page-{page} h1')")

    def close_dialog(self) -> None:
        """Close a dialog, and wait until it is gone: the next one is found by the same selector."""
        self.click("dialog .close")
        self.count("dialog", 0)

    def is_first(self, label: str) -> None:
        """Wait until a label is the first of those that are predicted."""
        self.wait(f"$('#predictions .name').textContent === {json.dumps(label)}")

    def ask_text(self, text: str) -> list[str]:
        """Type a text; the labels that the page shows for it."""
        self.fill("#text", "")
        self.count("#predictions > *", 0)
        self.fill("#text", text)
        self.wait("$$('#predictions > *').length && !$('#why').hidden")
        return self.run("$$('#predictions .name').map(e => e.textContent)")  # type: ignore[no-any-return]

    def train(self, model: str, file: str, data: bytes, ends_with: str = "#verdict") -> None:
        """Train a model from a file of this machine, and wait for what is shown in the end."""
        (self.directory / file).write_bytes(data)
        self.fill("#train-model", model)
        self.fill("#train-data", "")
        self.choose_files("#train-data-file", self.directory / file)
        self.click("#train-submit")
        self.wait(f"$('{ends_with}')")
