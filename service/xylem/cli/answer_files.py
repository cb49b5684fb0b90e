"""`xylem predict --out`: answers in files, written by threads or by the nodes of a cluster."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, NamedTuple

from typer import Option

from xylem import base, serving, thresholds
from xylem.cli.console import print_facts, print_json, progress
from xylem.cli.options import RayAddress, in_panel, parse_reference
from xylem.cli.places import opened_learning


@in_panel("Answers in files")
class AnswerFiles(NamedTuple):
    """The options for answers in files: where, in which format, and on which nodes."""

    out: Annotated[
        str | None,
        Option(
            metavar="DIR",
            help="Write answers to files in this directory or URL, each whole or not at all; "
            "files there "
            "stay.",
        ),
    ] = None
    form: Annotated[
        str | None,
        Option(
            "--format",
            metavar="jsonl|parquet",
            help="Format of the files of --out; default jsonl.",
        ),
    ] = None
    ray: RayAddress = None

    def check(self, data: str, *, tells_more: bool) -> None:
        """Raise BadParameter for options that cannot be used together.

        tells_more  whether answers have more about labels than their names and scores
        """
        if self.out is None:
            for name, value in (("ray", self.ray), ("format", self.form)):
                if value is not None:
                    raise base.BadParameter(f"--{name} cannot be used without --out")
            return
        if self.form not in (None, "jsonl", "parquet"):
            raise base.BadParameter(f"--format: expected jsonl or parquet, found {self.form!r}")
        if data == serving.STDIN:
            raise base.BadParameter("--out: expected files as --data, found standard input")
        if self.form == "parquet" and tells_more:
            raise base.BadParameter(
                "--format: expected jsonl with --explain, --language or --label-info, found parquet"
            )

    def write(
        self,
        data: str,
        columns: base.TableColumns,
        store: Path,
        threads: int,
        *,
        model: str,
        query: str,
        json: bool,
    ) -> None:
        """Write the answers of a version to files, and print their number.

        query  the options of a request, as a query string

        Raises BadData at the end if some lines had no instance.
        """

        assert self.out is not None
        if self.ray is not None and columns.vectors:
            raise base.BadParameter(
                "--vectors cannot be used with --ray: give --vector-column NAME"
            )
        vectors_by_file = tuple(
            (base.absolute(file), base.absolute(vectors)) for file, vectors in columns.vectors
        )
        step = step_of(
            store,
            model,
            query,
            columns._replace(vectors=vectors_by_file),
            out=str(base.absolute(base.file_path(self.out))),
            form="parquet" if self.form == "parquet" else "jsonl",
            threads=threads if self.ray is None else 1,
        )
        with progress(json) as show:
            counts = serving.answer_files(
                step, base.file_path(data), base.crew_of(1, self.ray), show
            )
        version = f"{step.model}@{step.version}"
        if json:
            print_json({"version": version, "out": step.out, **counts._asdict()})
        else:
            print_facts(
                f"Answers of {version} in {step.out}",
                {
                    "parts": counts.n_parts,
                    "there before": counts.n_there,
                    "lines": counts.n_rows,
                    "bad": counts.n_bad,
                },
            )
        if counts.n_bad:
            raise base.BadData(
                f"{data}: expected an instance on each of {counts.n_rows + counts.n_bad} lines, "
                f"found {counts.n_bad} without"
            )


def step_of(
    store: Path,
    model: str,
    query: str,
    columns: base.TableColumns,
    *,
    out: str,
    form: "serving.Format",
    threads: int,
) -> "serving.AnswerParts":
    """Return the step that writes the answers of each part of the data.

    Raises BadInput for a version or options that cannot be used.
    """

    limits = base.read_settings().limits
    options = serving.parse_options(query.encode(), limits)
    name, reference = parse_reference(model)
    model_store = serving.store_of(store)
    is_tuned = options.threshold == serving.TUNED
    with opened_learning(store, create=False) if is_tuned else nullcontext() as learning:
        served = serving.open_named(model_store, name, reference, learning, is_tuned=is_tuned)
    live = served.thresholds
    tuned = None
    serving.answers_of(served, options, limits)  # raises for unusable options
    if is_tuned:
        tuned = (
            live.snapshot(),
            thresholds.Head(0, live.model, live.version, live.epoch, live.base_epoch, 0),
        )
    return serving.AnswerParts(
        store=str(store.absolute()),
        model=name,
        version=served.opened.manifest.version,
        digest=served.opened.manifest.digest,
        query=query,
        denied=serving.denied_by(model_store, name, reference),
        tuned=tuned,
        columns=columns,
        limits=limits,
        out=out,
        form=form,
        threads=threads,
    )
