"""The commands of docs/learning.md on one model that learns, word for word and in their order.

The vocabulary is small, but as that of `kirjasto-fi`: concepts of YSO with Finnish names, in SKOS.
"""

import contextlib
import gzip
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import metadata
from pathlib import Path

import pytest
from tests.helpers.datasets_helpers import write_lines
from tests.helpers.replicas import reserved_ports
from tests.helpers.servers import wait_for

import xylem
from xylem.workflows.recipe import Recipe
from xylem_store.origin import read_origin, read_report
from xylem_store.store import Store

PAGE = Path(__file__).resolve().parents[2] / "docs" / "learning.md"
YSO = "http://www.yso.fi/onto/yso/"
NAMES = {"p13588": "ilves", "p16400": "susi", "p2787": "kirjastot", "p10": "ympäristötietoisuus"}
NAMES |= {"p100": "elatusturva", "p1000": "taidekäsityö", "p1": "nisäkkäät", "p2": "asiat"}
BY_DEFAULT = "http://127.0.0.1:8080"
CHANGED = ("thresholds", "cron", "parameters", "promotion")
"""Fields of the recipe that the page changes."""

WORDS = ["mistä", "saan", "tietoa", "löytyykö", "kirjaa", "aiheesta", "kiitos", "vastauksesta"]


def blocks() -> list[tuple[str, str]]:
    """The blocks of the page up to the week with the parts: each a language and a text."""
    text = PAGE.read_text().partition("\n## A week with the parts\n")[0]
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def documents(n: int, seed: int, n_words: int = 25) -> list[dict[str, object]]:
    """Texts with two of the concepts, among words that say nothing; two concepts are in none."""
    draw = random.Random(seed)
    rows: list[dict[str, object]] = []
    for _ in range(n):
        keys = draw.sample(list(NAMES)[:-2], 2)
        words = [NAMES[key] for key in keys] + draw.sample(WORDS, 3)
        words += [f"sana{draw.randrange(400)}" for _ in range(n_words)]
        draw.shuffle(words)
        rows.append({"text": " ".join(words), "labels": [YSO + key for key in keys]})
    return rows


def write_files(home: Path) -> None:
    """Write the files that the page names."""
    concepts = [
        f'<{YSO}{key}> a skos:Concept; skos:prefLabel "{name}"@fi .' for key, name in NAMES.items()
    ]
    prefix = "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n"
    (home / "yso.ttl").write_text(prefix + "\n".join(concepts) + "\n")
    write_lines(home / "documents.jsonl", documents(360, 1))
    titles = write_lines(home / "titles.jsonl", documents(200, 2, n_words=2))
    (home / "titles.jsonl.gz").write_bytes(gzip.compress(titles.read_bytes()))


def environment(home: Path, port: int) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {"PATH": path, "XYLEM_STORE": str(home / "store"), "XYLEM_PORT": str(port)}
    return {**os.environ, **variables, "XYLEM_STORE_POLL_SECONDS": "0.05"}


@contextlib.contextmanager
def served(line: str, home: Path, variables: dict[str, str]) -> Iterator[None]:
    """Run the line of a server beside the block; end it as a terminal does."""
    with (home / "log").open("w") as log:
        server = subprocess.Popen(
            line, shell=True, cwd=home, env=variables, stderr=log, start_new_session=True
        )
        try:
            yield
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait()


def run(lines: str, home: Path, variables: dict[str, str]) -> str:
    """Run lines of a shell, each of which must succeed; return what they print."""
    done = subprocess.run(
        f"set -e\n{lines}",
        shell=True,
        cwd=home,
        env=variables,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, (lines, done.stderr)
    return done.stdout


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory with the files that the page names."""
    write_files(tmp_path)
    return tmp_path


def test_the_page_is_followed_word_for_word(home: Path) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("rdflib")
    begin, correct, again, show, recipe, repeat, concept = blocks()
    assert [block[0] for block in blocks()] == ["sh", "python", "sh", "sh", "toml", "sh", "sh"]
    install, learn, serve = begin[1].splitlines()
    extras = re.findall(r"\w+", install.partition("[")[2])
    assert extras and set(extras) <= set(metadata("xylem-serve").get_all("Provides-Extra") or ())
    with reserved_ports(1) as (port,):
        url = f"http://127.0.0.1:{port}"
        variables = environment(home, port)
        printed = run(learn, home, variables)
        assert "it is the first version of the model" in printed and "titles.jsonl.gz" in printed
        with served(serve, home, variables), xylem.Client(url, retries=0) as client:

            def serves(version: int) -> bool:
                try:
                    return client.predict("yso", ["ilves"]).version == version
                except xylem.errors.ClientError:
                    return False

            wait_for(lambda: serves(1))
            exec(compile(correct[1].replace(BY_DEFAULT, url), PAGE.name, "exec"), {})
            printed = run(again[1], home, variables)
            wait_for(lambda: serves(2))
    assert re.search(r"feedback\W+1\b", printed), printed
    for part in ("interval of the change", "F1@5", "found by their names alone", "because"):
        assert part in printed
    run(show[1], home, variables)
    shown = Recipe.read(home / "yso.toml")
    (home / "yso.toml").write_text(recipe[1])
    run(repeat[1], home, variables)
    assert "uusi asia" in run(concept[1], home, variables)
    used = Recipe.from_json(read_origin(Store(home / "store").open("yso", 3).arrays)["recipe"])
    assert (used.thresholds, used.cron) == ("instance", "0 3 * * 0")
    changes = {name: getattr(used, name) for name in CHANGED}
    assert shown.model_copy(update=changes).without_paths == used.without_paths
    learnt = read_report(Store(home / "store").open("yso", 3).arrays)["learning"]
    assert learnt["judges"]["rows"] >= 30 and learnt["sources"][2]["rows"] == 1
