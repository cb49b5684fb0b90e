"""Label info that is read from a file whose content a test gives."""

from pathlib import Path

from xylem.vocabulary.label_info import read_label_info
from xylem_store.label_info import LabelInfo, Subject


def subjects_of(info: LabelInfo) -> list[Subject]:
    """The subjects of a table, by their URIs."""
    found = []
    for i in range(info.head.n_subjects):
        names = {tag: name for tag in info.head.languages if (name := info.text(f"name:{tag}", i))}
        above = [info.text("uri", at) or "" for at in info.above(i)]
        found.append(Subject(info.text("uri", i) or "", info.text("notation", i), names, above))
    return sorted(found)


def read_info(directory: Path, name: str, content: str | bytes, **options: str) -> LabelInfo:
    path = directory / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_label_info(path, **options)
