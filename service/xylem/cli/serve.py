"""`xylem serve`, the service, and `xylem worker`, which runs waiting jobs of a database."""

from pathlib import Path
from typing import Annotated

from typer import Option

from xylem import admin, base, server
from xylem.cli.console import print_json
from xylem.cli.options import Json

Store = Annotated[
    Path | None,
    Option("--store", metavar="DIR", help="The directory of the models; $XYLEM_STORE, or ./store."),
]


def serve(
    store: Store = None,
    host: Annotated[
        str | None,
        Option(help="The address to listen on; $XYLEM_HOST, or 127.0.0.1.", show_default=False),
    ] = None,
    port: Annotated[
        int | None,
        Option(min=0, max=65535, help="The port; 0 is a free one; $XYLEM_PORT, or 8080."),
    ] = None,
    grpc_port: Annotated[
        int | None,
        Option(
            "--grpc-port",
            min=0,
            max=65535,
            metavar="PORT",
            help="Answer gRPC on this port; 0 is a free one; $XYLEM_GRPC_PORT, or no gRPC.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        Option(
            min=1, max=256, help="Processes; they share the mapped models; $XYLEM_WORKERS, or 1."
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        Option(
            min=0, max=64, help="Jobs run at a time, in a process beside it; $XYLEM_JOBS, or 1."
        ),
    ] = None,
    preload: Annotated[
        list[str] | None,
        Option(
            metavar="PATTERN",
            help="Models to open at the start, as 'shop-*', where XYLEM_MODELS_LOADED bounds the "
            "open ones; may be repeated; $XYLEM_PRELOAD, or none.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Serve the models of a store over HTTP, and gRPC with --grpc-port, until SIGTERM or Ctrl-C.

    XYLEM_ variables set everything else. The log is JSON lines on standard error; with --json a
    line on standard output says at the end that the server has stopped.
    """

    overrides = {
        "store": store,
        "host": host,
        "port": port,
        "grpc_port": grpc_port,
        "workers": workers,
        "jobs": jobs,
        "preload": preload or None,
    }
    server.run(
        base.read_settings(
            **{name: value for name, value in overrides.items() if value is not None}
        )
    )
    if json:
        print_json({"stopped": True})


def worker(
    store: Store = None,
    jobs: Annotated[int, Option(min=1, max=64, help="Number of jobs to run at a time.")] = 1,
    metrics_port: Annotated[
        int | None,
        Option(
            "--metrics-port",
            min=0,
            max=65535,
            metavar="PORT",
            help="Answer GET /metrics on this port of $XYLEM_HOST; 0: a free one.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Run waiting jobs (training, threshold tuning, batches) until SIGTERM or Ctrl-C.

    A job that is running then waits again. Needs the store and the database of the servers that
    take the jobs, and the data directory (XYLEM_DATA_DIR); XYLEM_ variables set everything else.
    The log is JSON lines on standard error; with --json a line on standard output says at the end
    that the worker has stopped.
    """

    settings = base.read_settings(**({} if store is None else {"store": store}))
    base.configure(settings.log_level)
    base.write_in_background()
    admin.run_workers(settings, jobs, metrics_port=metrics_port)
    if json:
        print_json({"stopped": True})
