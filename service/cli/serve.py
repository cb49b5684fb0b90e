"""`xylem serve`: the service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.cli.console import print_json
from service.cli.options import Json

Store = Annotated[
    Path | None,
    typer.Option("--store", metavar="DIR", help="The directory of the models; $XYLEM_STORE, or ./store."),
]
Host = Annotated[str, typer.Option(help="The address to listen on.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 is a free one.")]
Workers = Annotated[int, typer.Option(min=1, max=256, help="Processes; they share the mapped models.")]


def serve(
    store: Store = None,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    workers: Workers = 1,
    json: Json = False,
) -> None:
    """Serve the models of a store over HTTP until SIGTERM or Ctrl-C; all else is set by XYLEM_ variables.

    The log is JSON lines on standard error; with --json a line on standard output says at the end that the
    server has stopped.
    """
    from service.serve import run
    from service.settings import read_settings

    run(read_settings(**({} if store is None else {"store": store})), host, port, workers)
    if json:
        print_json({"stopped": True})
