"""`xylem inspect`: what is understood of a data file, before anything is made of it."""

import shlex
from pathlib import Path
from typing import Annotated

from typer import Argument

from xylem import datasets
from xylem.base import file_path
from xylem.cli.console import first_rows, print_json, print_line, print_rows, progress
from xylem.cli.options import FORMATS, Json, Table, grouped

N_FIRST_ROWS = 3


@grouped
def inspect(
    file: Annotated[
        Path, Argument(metavar="FILE", parser=file_path, help=f"A labelled file: {FORMATS}.")
    ],
    table: Table,
    json: Json = False,
) -> None:
    """Say what is understood of a data file: its rows and labels, the first rows, and findings.

    It also prints the command that trains on the file, with the options that were guessed.
    """

    with progress(json) as show:
        dataset = datasets.read_dataset(
            file,
            columns=table.columns(file),
            on_progress=lambda done, total: show("read", done, total),
        )
    assert dataset.report is not None
    command = shlex.join(
        [
            *("xylem", "train", "label-tree", "--data", str(file)),
            *dataset.report.options,
            *("--model", "NAME"),
        ]
    )
    if json:
        print_json({"first_rows": first_rows(dataset, N_FIRST_ROWS), "train": command})
        return
    print_rows(dataset, N_FIRST_ROWS)
    print_line(command)
