"""Every command of docs/admin.md, canary.md and keys.md, in their
order: they answer what the pages show.
"""

import contextlib
import io
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.helpers.servers import ServerProcess, wait_for

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("admin.md", "keys.md")
ALL = ("admin.md", "canary.md", "keys.md")
"""With the page that trains and asks for a minute more."""
RUN = ("sh", "python")
URL = "http://127.0.0.1:8080"
KEY = "xk_the_key_of_the_first_start"
END = "@@ the end of a block"
EXACT = {"status", "lines", "bad", "baseline", "versions"}
EXACT |= {"version", "previous_version", "from_version", "to_version"}
"""Numbers that the pages tell as they are; others differ from run to run."""
OPAQUE = {"id", "key", "worker", "job"}
"""Fields that differ from run to run."""


class Block(NamedTuple):
    """A block of a page: what is run, else what it answers."""

    page: str
    language: str
    text: str


def blocks(page: str) -> list[Block]:
    """The blocks of a page, but those that only show something (`console`)."""
    text = (ROOT / "docs" / page).read_text()
    found = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(page, language, inside) for language, inside in found if language != "console"]


class Reader:
    """Who follows the pages: one shell for all blocks, and Python beside it, in one directory."""

    def __init__(self, directory: Path, url: str, key: str) -> None:
        self._url, self._key = url, key
        self._names: dict[str, Any] = {}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "XYLEM_STORE": str(directory / "store")}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self._shell = subprocess.Popen(["sh"], cwd=directory, env=environment, text=True, **pipes)

    def close(self) -> None:
        self._shell.kill()
        self._shell.communicate()

    def run(self, block: Block) -> str:
        """Run a block; return what it prints."""
        there = block.text.replace(URL, self._url).replace(KEY, self._key)
        if block.language == "sh":
            return self._run_lines(there)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(there, block.page, "exec"), self._names)
        return said.getvalue()

    def _run_lines(self, text: str) -> str:
        assert self._shell.stdin is not None and self._shell.stdout is not None
        self._shell.stdin.write(f"{text}\nprintf '\\n%s\\n' '{END}'\n")
        self._shell.stdin.flush()
        said = []
        for line in self._shell.stdout:
            if line.rstrip("\n") == END:
                return "".join(said).rstrip("\n") + "\n"
            said.append(line)
        raise AssertionError("".join(said))


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    home = tmp_path_factory.mktemp("reader")
    for name in ("store", "data"):
        (home / name).mkdir()
    (home / "examples").symlink_to(ROOT / "examples")
    with ServerProcess(home / "store", jobs=1, data_dir=home / "data", job_nice=0) as server:
        wait_for(lambda: "shown this once" in server.log())
        key = re.findall(r"shown this once: (\S+)", server.log())[0]
        with contextlib.chdir(home), contextlib.closing(Reader(home, server.url, key)) as found:
            yield found


def assert_like(told: Any, found: Any, where: str) -> None:
    """All that a page tells of an answer is in it: fields, words, and the numbers of EXACT.

    Ids, times and figures differ; of those the kind counts.
    """
    if isinstance(told, dict):
        assert isinstance(found, dict), where
        for name, value in told.items():
            assert name in found, f"{where}.{name}"
            if name in EXACT:
                assert value == found[name], f"{where}.{name}"
            if name in OPAQUE and value is not None:
                assert isinstance(found[name], type(value)), f"{where}.{name}"
            else:
                assert_like(value, found[name], f"{where}.{name}")
    elif isinstance(told, list):
        assert isinstance(found, list) and len(told) <= len(found), where
        for place, (one, other) in enumerate(zip(told, found, strict=False)):
            assert_like(one, other, f"{where}[{place}]")
    elif isinstance(told, str):
        assert isinstance(found, str) and masked(told) == masked(found), (
            f"{where}: {told!r}, {found!r}"
        )
    elif isinstance(told, bool) or told is None:
        assert told is found, where
    else:
        assert isinstance(found, int | float), where


def masked(text: str) -> str:
    """A text without what differs from run to run: keys, ids, digests, times,
    figures, who runs it.
    """
    text = re.sub(r"(?<=\()[a-z0-9]{12}(?=\))|(?<=key )[a-z0-9]{12}(?=:)", "ID", text)
    text = re.sub(r"\b(?=\w*\d)[0-9a-z]{12,}\b", "ID", text)
    return " ".join(re.sub(r"-?\d+(\.\d+)?", "N", text).split())


def assert_answers(block: Block, answer: Block, said: str) -> None:
    """What a block printed is what the page shows after it."""
    where = f"{block.page}: {block.text}\nprinted {said}"
    if answer.language == "json":
        found = [json.loads(line) for line in said.splitlines() if line.startswith(("{", "["))]
        assert found, where
        assert_like(json.loads(answer.text), found[-1], where)
    elif answer.language == "events":
        assert said.startswith("event: job\nid: ") and '"state":"succeeded"' in said, where
    else:
        assert masked(answer.text) == masked(said), where


@pytest.mark.parametrize(
    "pages",
    [PAGES, pytest.param(ALL, marks=[pytest.mark.soak, pytest.mark.timeout(900)])],
    ids=["quick", "soak"],
)
def test_every_command_of_the_pages_answers_as_they_say(
    reader: Reader, pages: tuple[str, ...]
) -> None:
    there = [block for page in pages for block in blocks(page)]
    assert sum(block.language in RUN for block in there) >= 30
    for block, answer in itertools.pairwise([*there, Block("", "sh", "")]):
        if block.language not in RUN:
            continue
        said = reader.run(block)
        if answer.language in RUN:
            continue
        if "/predict" in block.text:  # the server looks at its store now and then, as people do
            wait_for(lambda b=block, a=answer: is_answered(b, a, reader.run(b)))
        else:
            assert_answers(block, answer, said)


def is_answered(block: Block, answer: Block, said: str) -> bool:
    """Whether the page shows what a block printed."""
    try:
        assert_answers(block, answer, said)
    except AssertionError:
        return False
    return True
