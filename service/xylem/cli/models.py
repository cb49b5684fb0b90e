"""`xylem models`: the content of the store, its export and import.

Commands that move aliases or delete are in `aliases`.
"""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option, Typer

import xylem_store
from xylem import serving
from xylem.base import BadInput, BadParameter, load_extra, unfinished
from xylem.cli.aliases import describe_split, store_to_publish
from xylem.cli.console import (
    as_option,
    flat,
    mebibytes,
    print_facts,
    print_json,
    print_line,
    print_list,
    print_result,
    print_table,
)
from xylem.cli.denied import describe_denial
from xylem.cli.options import DEFAULT_STORE, Json, Model, StoreDir, parse_reference

app = Typer(help="The store: its models, their versions and aliases.", no_args_is_help=True)


@app.command("list")
def list_models(store: StoreDir = DEFAULT_STORE, json: Json = False) -> None:
    """List the models with their versions and aliases."""
    models = serving.store_of(store).models()
    print_list(
        json,
        {"models": list(map(_listed, models))},
        (str(store), ("model", "versions", "aliases"), list(map(_row, models))),
        f"No models in {store}. Publish one: xylem train label-tree --data FILE --model NAME",
    )


def _listed(info: "xylem_store.ModelInfo") -> dict[str, object]:
    return {
        "name": info.name,
        "versions": list(info.versions),
        "aliases": dict(info.aliases),
        "broken_aliases": list(info.broken_aliases),
        "fault": None if info.fault is None else str(info.fault),
        "splits": {
            name: alias.split()
            for name, alias in sorted(info.documents.items())
            if alias.split_versions
        },
        "denied": {
            name: len(alias.denied)
            for name, alias in sorted(info.documents.items())
            if alias.denied
        },
    }


def _row(info: "xylem_store.ModelInfo") -> tuple[str, str, str]:
    aliases = [
        f"{name} -> {alias.version}{describe_split(alias)}{describe_denial(alias.denied)}"
        for name, alias in sorted(info.documents.items())
    ]
    aliases += [f"{alias} (unreadable)" for alias in info.broken_aliases]
    aliases += [] if info.fault is None else [f"unreadable: {info.fault}"]
    return info.name, ", ".join(map(str, info.versions)), ", ".join(aliases)


def manifest_facts(manifest: "xylem_store.Manifest") -> dict[str, Any]:
    """Return a manifest as a JSON object, without its list of arrays."""
    facts = dataclasses.asdict(manifest)
    del facts["arrays"]
    facts["trainer"] = {
        **manifest.trainer._asdict(),
        "parameters": dict(manifest.trainer.parameters),
    }
    facts["data"] = manifest.data._asdict()
    facts["model_bytes"] = manifest.model_bytes
    facts["members"] = [manifest_facts(member) for member in manifest.members]
    return facts


@app.command()
def show(model: Model, store: StoreDir = DEFAULT_STORE, json: Json = False) -> None:
    """Show what a version is, and where it comes from."""

    model_store = serving.store_of(store)
    name, reference = parse_reference(model)
    manifest = model_store.manifest(name, model_store.resolve(name, reference))
    facts = manifest_facts(manifest)
    arrays = model_store.open(name, manifest.version, verify=False).arrays
    report = xylem_store.read_report(arrays)
    origin = xylem_store.read_origin(arrays)
    denied = (
        {}
        if xylem_store.is_version(reference)
        else {"denied": list(model_store.alias(name, reference).denied)}
    )
    if json:
        print_json({**facts, **denied, "origin": origin, "report": report})
        return
    facts["members"] = ", ".join(member.full_name for member in manifest.members)
    facts["origin"] = {name: fact for name, fact in origin.items() if name != "members"}
    facts["model_bytes"] = mebibytes(manifest.model_bytes)
    summary = {key: as_option(value) for key, value in flat(facts).items()}
    if denied.get("denied"):
        summary[f"labels that {reference} denies"] = ", ".join(denied["denied"])
    print_facts(manifest.full_name, summary)
    _print_report(report)


@app.command("report")
def draw(
    model: Model,
    out: Annotated[Path, Option(metavar="DIR", help="Where the PNG files go.")],
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Draw a version's report: criteria and error against splits, or the features of each depth."""

    charts = load_extra("report")
    model_store = serving.store_of(store)
    name, reference = parse_reference(model)
    version = model_store.resolve(name, reference)
    files = [
        str(file)
        for file in charts.draw_report(
            xylem_store.read_report(model_store.open(name, version, verify=False).arrays),
            f"{name}@{version}",
            out,
        )
    ]
    if not files:
        raise BadInput(
            f"{name}@{version}: expected a report to draw, found none: was it trained here?"
        )
    print_result(json, "\n".join(files), model=name, version=version, files=files)


def _print_report(report: dict[str, Any]) -> None:
    if forest := report.get("forest"):
        _print_lines(
            f"Leaves by splits, means of {len(forest['trees'])} trees", "splits", forest["splits"]
        )
        _print_lines("Splits by depth", "depth", forest["depths"])
        _print_lines("Trees", "nodes", forest["trees"])
    if updates := report.get("training", {}).get("updates"):
        lines = [{**update["levels"][0], **update} for update in updates if update["levels"]]
        _print_lines(
            "Root by updates",
            "rows",
            [
                {
                    name: line[name]
                    for name in ("rows", "objective", "share", "purity", "share_moved")
                }
                for line in lines
            ],
        )
    if size := report.get("size"):
        print_line(
            f"{size['weights']:,} weights; {mebibytes(size['bytes'])} stored, "
            f"{size['bytes'] / max(1, size['ovr_bytes']):.3f} of flat one-vs-rest"
        )
        _print_lines("Features by depth", "depth", size["depths"])


def _print_lines(title: str, key: str, lines: list[dict[str, float]]) -> None:
    """Print lines of named numbers as a table; a missing name is an empty cell."""
    names = [key, *sorted({name for line in lines for name in line} - {key})]
    print_table(title, names, [[line.get(name, "") for name in names] for line in lines])


@app.command()
def verify(model: Model, store: StoreDir = DEFAULT_STORE, json: Json = False) -> None:
    """Check every checksum and every invariant of a version, and open it as a server does."""
    model_store = serving.store_of(store)
    name, reference = parse_reference(model)
    version = model_store.resolve(name, reference)
    model_store.verify(name, version)
    print_result(json, f"{name}@{version} is whole", model=name, version=version, verified=True)


@app.command()
def collect(store: StoreDir = DEFAULT_STORE, json: Json = False) -> None:
    """Remove files of interrupted publications.

    Versions, and publications that are under way, are not touched.
    """
    removed = [str(path) for path in serving.store_of(store).collect()]
    print_result(
        json,
        f"{len(removed)} unfinished write{'' if len(removed) == 1 else 's'} removed from {store}",
        removed=removed,
    )


@app.command("export")
def export_model(
    model: Model,
    file: Annotated[Path, Option("--file", metavar="FILE", help="A tar file.")],
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Write a version as one tar file, and the model's label info with it."""
    model_store = serving.store_of(store)
    name, reference = parse_reference(model)
    version = model_store.resolve(name, reference)
    if file.is_dir() or not file.parent.is_dir():
        raise BadInput(
            f"{file}: expected the name of a file, in a directory that is there, "
            f"found {'a directory' if file.is_dir() else 'no such directory'}"
        )
    try:
        with unfinished(file) as out:
            model_store.export(name, version, out, label_info=True)
    except OSError as error:  # the error of a failed write lacks the file's name
        raise OSError(error.errno, error.strerror, str(file)) from error
    n_bytes = file.stat().st_size
    print_result(
        json,
        f"{name}@{version} -> {file} ({mebibytes(n_bytes)})",
        model=name,
        version=version,
        file=str(file),
        bytes=n_bytes,
    )


@app.command("import")
def import_model(
    path: Annotated[
        Path | None, Argument(metavar="PATH", help="With --from: what it saved.")
    ] = None,
    file: Annotated[
        Path | None, Option("--file", metavar="FILE", help="An exported tar file.")
    ] = None,
    model: Annotated[
        str | None, Option(metavar="NAME", help="The model to add a version to.")
    ] = None,
    library: Annotated[
        str | None, Option("--from", help="pecos, omikuji, napkinxc or libmultilabel.")
    ] = None,
    labels: Annotated[
        Path | None, Option(metavar="FILE", help="With --from: line i + 1 is the name of label i.")
    ] = None,
    features: Annotated[
        int | None, Option(metavar="N", help="With --from: rows have features up to N - 1.")
    ] = None,
    weights: Annotated[
        str | None,
        Option(help="With --from: store them as float32 (the default), bfloat16 or int8."),
    ] = None,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Publish an exported file, or a model of another library, as a new version.

    It is checked first.
    """
    model_store = store_to_publish(store, "xylem models import")
    if library is not None and path is not None and file is None:
        manifest = load_extra("importers").import_model(
            model_store, library, path, labels, model, features, weights or "float32"
        )
    elif (
        file is not None
        and model is not None
        and (library, path, labels, features, weights) == (None,) * 5
    ):
        if not file.is_file():
            raise BadInput(f"{file}: expected a file that `xylem models export` wrote, found none")
        with file.open("rb") as archive:
            manifest = model_store.import_(archive, model)
    else:
        raise BadParameter(
            "expected --file FILE --model NAME, or --from LIBRARY PATH, found other options"
        )
    print_result(
        json,
        f"{file or path} -> {manifest.full_name}",
        model=manifest.model,
        version=manifest.version,
    )
