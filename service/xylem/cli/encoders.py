"""`xylem encoders`: the sentence encoders of a store."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option, Typer

import xylem_store
from xylem import serving
from xylem.base import load_extra
from xylem.cli.console import mebibytes, print_list, print_result, print_summary
from xylem.cli.options import DEFAULT_STORE, Json, StoreDir

app = Typer(
    help="Sentence encoders of the store: what texts mean, as numbers.", no_args_is_help=True
)

EncoderName = Annotated[str, Argument(metavar="NAME", help="An encoder of the store.")]


@app.command()
def add(
    name: Annotated[str, Argument(metavar="NAME", help="What trainings call it.")],
    folder: Annotated[
        Path, Argument(metavar="DIR", help="Has model.onnx or onnx/model.onnx, and tokenizer.json.")
    ],
    pooling: Annotated[
        str | None,
        Option(
            metavar="mean|cls|output",
            help="How vectors of tokens become one; default: as 1_Pooling/config.json says, or the "
            "graph's output sentence_embedding.",
        ),
    ] = None,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Check a sentence encoder in ONNX, and copy it into the store."""
    arrays, encoder = load_extra("encoder").read_encoder(folder, pooling)
    info = serving.store_of(store).encoders.add(name, arrays)
    print_result(
        json,
        f"encoder {name}: {encoder.dims} numbers a text, pooling {encoder.pooling}, "
        f"{mebibytes(info.n_bytes)}",
        **_facts(info),
        dims=encoder.dims,
        pooling=encoder.pooling,
    )


@app.command("list")
def list_encoders(store: StoreDir = DEFAULT_STORE, json: Json = False) -> None:
    """List the encoders that have a name."""
    facts = [_facts(info) for info in serving.store_of(store).encoders.list()]
    print_list(
        json,
        {"encoders": facts},
        (
            str(store),
            ("encoder", "content", "size", "versions"),
            [
                (info["name"], info["digest"][:12], mebibytes(info["bytes"]), info["versions"])
                for info in facts
            ],
        ),
        f"No encoders in {store}. Add one: xylem encoders add NAME DIR",
    )


@app.command()
def show(name: EncoderName, store: StoreDir = DEFAULT_STORE, json: Json = False) -> None:
    """Show an encoder, after checking its files."""

    encoders = serving.store_of(store).encoders
    facts = {
        **_facts(encoders.info(name)),
        **xylem_store.read_json_array(encoders.open(name).by_name, "encoder/config"),
    }
    print_summary(json, facts, f"encoder {name}", {**facts, "bytes": mebibytes(facts["bytes"])})


@app.command()
def remove(name: EncoderName, store: StoreDir = DEFAULT_STORE, json: Json = False) -> None:
    """Remove the name of an encoder, and its files unless a version has them."""
    info = serving.store_of(store).encoders.remove(name)
    print_result(
        json, f"encoder {name} is removed; versions that have it: {info.n_versions}", **_facts(info)
    )


def _facts(info: Any) -> dict[str, Any]:
    """Return what is said of an encoder of a store, `xylem_store.encoder_files.EncoderInfo`."""
    return {
        "name": info.name,
        "digest": info.digest,
        "bytes": info.n_bytes,
        "versions": info.n_versions,
    }
