"""A labelled set of German texts: Debian's translated package descriptions, and the packages' debtags.

Of the lists that `apt-get update` keeps, those of the packages and of their German descriptions are read. The
label of a package is each of its tags but those of `special::`. A fifth is the test part: the packages whose
source package's name has a sha256 that 5 divides.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

APT_HELPER = Path("/usr/lib/apt/apt-helper")
"""It reads lists in whatever way apt compressed them."""

URI = "https://debtags.example/"
"""What a tag is after in Annif's files: labels are URIs there."""

TEST = 5


class Described(NamedTuple):
    """A package: its name and German description, its tags, and whether it is of the test part."""

    name: str
    text: str
    labels: list[str]
    is_test: bool


def described_packages(lists: Path) -> list[Described]:
    """Return the packages with a German description and a tag, sorted by name; each text once."""
    german = {}
    for path in sorted(lists.glob("*_Translation-de*")):
        for fields in _stanzas(path):
            german[fields["Package"], fields["Description-md5"]] = fields["Description-de"]
    found: dict[str, Described] = {}
    for path in sorted(lists.glob("*_Packages*")):
        for fields in _stanzas(path):
            text = german.get((fields["Package"], fields.get("Description-md5", "")))
            tags = [tag for tag in re.split(r"[,\s]+", fields.get("Tag", "")) if tag]
            labels = sorted({tag for tag in tags if not tag.startswith("special::")})
            if text is not None and labels:
                found.setdefault(fields["Package"], _described(fields, text, labels))
    once = {package.text: package for package in sorted(found.values(), reverse=True)}
    return sorted(once.values())


def _described(fields: dict[str, str], text: str, labels: list[str]) -> Described:
    source = fields.get("Source", fields["Package"]).split(" ")[0]
    is_test = int(hashlib.sha256(source.encode()).hexdigest(), 16) % TEST == 0
    whole = re.sub(r"\s+", " ", text.replace("\n.\n", "\n"))
    return Described(fields["Package"], whole.strip(), labels, is_test)


def _stanzas(path: Path) -> Iterator[dict[str, str]]:
    """Yield the stanzas of a list of apt's as fields; lines that go on are joined by line ends."""
    command = [str(APT_HELPER), "cat-file", str(path)]
    text = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode()
    for stanza in text.split("\n\n"):
        fields: dict[str, str] = {}
        name = ""
        for line in stanza.splitlines():
            if line[:1] == " ":
                fields[name] += f"\n{line[1:]}"
            else:
                name, _, value = line.partition(":")
                fields[name] = value.strip()
        if fields:
            yield fields


def write_set(packages: list[Described], out: Path) -> None:
    """Write train.jsonl and test.jsonl, and for Annif the same as .tsv, and vocabulary.tsv."""
    out.mkdir(parents=True, exist_ok=True)
    for part, is_test in (("train", False), ("test", True)):
        rows = [package for package in packages if package.is_test == is_test]
        lines = [
            json.dumps({"text": row.text, "labels": row.labels, "id": row.name}, ensure_ascii=False)
            for row in rows
        ]
        (out / f"{part}.jsonl").write_text("".join(f"{line}\n" for line in lines))
        subjects = [" ".join(f"<{URI}{label}>" for label in row.labels) for row in rows]
        annif = [f"{row.text}\t{uris}\n" for row, uris in zip(rows, subjects, strict=True)]
        (out / f"{part}.tsv").write_text("".join(annif))
    labels = sorted({label for package in packages for label in package.labels})
    (out / "vocabulary.tsv").write_text("".join(f"<{URI}{label}>\t{label}\n" for label in labels))
