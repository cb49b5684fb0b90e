"""The list of all pages, which is the first page of the site."""

import re
from pathlib import Path

from xylem.trainers import TRAINERS

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_first_page_names_pages_by_their_titles() -> None:
    """On the site nobody sees files: `tour.md` says nothing there."""
    text = (DOCS / "README.md").read_text()
    links = re.findall(r"\[([^]]+)\]\(([^)]+\.md)\)", text)
    pages = ((name, (DOCS / link).read_text()) for name, link in links)
    titles = [(name, re.findall(r"^# (.+)$", page, re.MULTILINE)[0]) for name, page in pages]
    of_trainers = set(TRAINERS)
    assert [pair for pair in titles if pair[0] != pair[1] and pair[0] not in of_trainers] == []
    assert len(titles) > 40
