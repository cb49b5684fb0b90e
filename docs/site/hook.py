"""What mkdocs asks while it makes the site: pages outside docs/, such
as CHANGELOG.md, belong to it too.

A link from a page to a file outside docs/ leads to a copy under `project/`; one to a directory
becomes text.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
PLACE = "project"
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s:#]+)(#[^)]*)?\)")


def _place_of(page: str) -> PurePosixPath:
    """Return where a page of the site stands in the repository."""
    inside = page.removeprefix(f"{PLACE}/")
    return PurePosixPath(inside) if inside != page else PurePosixPath("docs") / page


def _target(page: str, link: str) -> PurePosixPath:
    """Return the file in the repository that a page's link names."""
    return PurePosixPath(os.path.normpath(_place_of(page).parent / link))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside docs/ that pages link to, and those that these link to."""
    waiting = [file for file in files if file.src_uri.endswith(".md")]
    while waiting:
        page = waiting.pop()
        for _, link, _ in LINK.findall(page.content_string):
            target = _target(page.src_uri, link)
            uri = f"{PLACE}/{target}"
            if target.parts[0] in ("docs", "..") or files.get_file_from_path(uri):
                continue
            if (ROOT / target).is_file():
                file = File.generated(config, uri, abs_src_path=str(ROOT / target))
                files.append(file)
                waiting += [file] if uri.endswith(".md") else []
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to files outside docs/ to their copies."""
    uri = page.file.src_uri

    def lead(found: re.Match[str]) -> str:
        text, link, anchor = found.groups()
        target = _target(uri, link)
        if (ROOT / target).is_dir():
            return str(text)
        inside = target.relative_to("docs") if target.parts[0] == "docs" else PLACE / target
        return f"[{text}]({os.path.relpath(inside, PurePosixPath(uri).parent)}{anchor or ''})"

    return LINK.sub(lead, markdown)
