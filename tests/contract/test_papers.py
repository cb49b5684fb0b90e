"""The page of the papers names files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/papers.md").read_text()
PATHS = sorted(set(re.findall(r"`([\w./]+/[\w./]+\.(?:py|md))`", PAGE)))
LINKS = sorted(set(re.findall(r"\]\(([\w./-]+\.md)\)", PAGE)))


@pytest.mark.parametrize("path", PATHS)
def test_every_path_of_the_page_exists(path: str) -> None:
    assert (ROOT / path).is_file()


@pytest.mark.parametrize("link", LINKS)
def test_every_link_of_the_page_leads_somewhere(link: str) -> None:
    assert (ROOT / "docs" / link).is_file()


def test_the_page_has_the_five_papers_and_says_where_each_line_lives() -> None:
    assert PAGE.count("\n## ") == 5
    lines = [
        line
        for line in PAGE.split("\n### ")[0].splitlines()
        if line.startswith("| ") and not line.startswith("| paper")
    ]
    for line in lines:
        where = line.split("|")[2]
        assert "`" in where or "](" in where or where.strip() == "not built", line
