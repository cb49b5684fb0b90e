"""`xylem models push` and `pull`: versions to and from an object store."""

import contextlib
from typing import Annotated

from typer import Argument, Option, Typer

import xylem_store
from xylem import admin, serving
from xylem.base import BadInput, BadParameter
from xylem.cli.aliases import describe_split, fraction_of
from xylem.cli.console import mebibytes, print_result
from xylem.cli.options import DEFAULT_STORE, Json, Model, StoreDir, parse_reference

app = Typer(help="Object stores: a part of `xylem models`.")

Url = Annotated[
    str,
    Argument(metavar="URL", help="An object store: s3://BUCKET/PREFIX, or another of fsspec's."),
]


@app.command()
def push(
    model: Model,
    url: Url,
    alias: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="An alias there that moves to the version; may repeat."),
    ] = None,
    canary: Annotated[
        str | None,
        Option(metavar="PART", help="Move no alias; answer this share of its requests: 10%."),
    ] = None,
    shadow: Annotated[
        str | None, Option(metavar="PART", help="Move no alias; answer copies of this share: 100%.")
    ] = None,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Write a version to an object store, unless it is there already.

    Servers that follow the aliases there fetch it. The model's label info goes with it, and labels
    that the aliases deny here are denied there too.
    """

    model_store = serving.store_of(store)
    remote = admin.RemoteStore(url)
    name, reference = parse_reference(model)
    version = model_store.resolve(name, reference)
    move = xylem_store.promoted(version)
    if canary is not None and shadow is not None:
        raise BadParameter("expected --canary or --shadow, not both")
    if canary is not None:
        move = xylem_store.with_canary(version, fraction_of("--canary", canary))
    if shadow is not None:
        move = xylem_store.with_shadow(version, fraction_of("--shadow", shadow))
    if (canary is not None or shadow is not None) and not alias:
        raise BadInput(
            "--canary and --shadow cannot be used without --alias, whose requests they share"
        )
    if alias:
        model_store.verify(name, version)  # opens it as a server does, before an alias there moves
    remote_version = remote.push(model_store, name, version)
    info = remote.push_label_info(model_store, name)
    changes = {
        alias_name: denying_as_here(model_store, name, alias_name, move)
        for alias_name in alias or ()
    }
    remote_model = remote.change(name, changes, remote_version, info)
    documents = {alias_name: remote_model.aliases[alias_name] for alias_name in changes}
    lines = [
        f"{name}: {alias_name} -> {document.version}{describe_split(document)}"
        for alias_name, document in documents.items()
    ]
    print_result(
        json,
        "\n".join([f"{name}@{version} -> {remote.url}", *lines]),
        url=remote.url,
        model=name,
        version=version,
        digest=remote_version.digest,
        aliases=alias or [],
        label_info=info and info.digest,
    )


@app.command()
def pull(model: Model, url: Url, store: StoreDir = DEFAULT_STORE, json: Json = False) -> None:
    """Fetch a version from an object store, by its number or by an alias there.

    No alias here moves, except that `latest` names a model's first version. All digests are checked
    before it is published. Label info comes with it, unless the model has some here.
    """

    remote = admin.RemoteStore(url)
    name, reference = parse_reference(model)
    model_store = serving.store_of(store)
    number = (
        int(reference) if reference.isdecimal() else alias_there(remote, name, reference).version
    )
    manifest = remote.pull(model_store, name, remote.find(name, number))
    info = remote.model(name).label_info
    if info is not None and model_store.label_info_head(name) is None:
        remote.pull_label_info(model_store, name, info)
    print_result(
        json,
        f"{remote.url} -> {name}@{manifest.version} ({mebibytes(manifest.model_bytes)})",
        url=remote.url,
        model=name,
        version=manifest.version,
    )


def denying_as_here(
    store: "xylem_store.Store", model: str, alias: str, change: "xylem_store.Change"
) -> "xylem_store.Change":
    """Return a change that also denies the labels that the local store's alias denies."""
    denied: tuple[str, ...] = ()
    with contextlib.suppress(xylem_store.AliasNotFound):
        denied = store.alias(model, alias).denied

    deny = xylem_store.denying(lambda labels: {*labels, *denied})
    return lambda document: change(deny(document) or document)


def alias_there(remote: "admin.RemoteStore", model: str, alias: str) -> "xylem_store.Alias":
    """Return an alias of an object store. Raises BadInput if there is none of this name."""
    aliases = remote.model(model).aliases
    if alias not in aliases:
        raise BadInput(
            f"{remote.url}: expected an alias of {model}, one of "
            f"{', '.join(sorted(aliases)) or 'none'}, found {alias!r}"
        )
    return aliases[alias]
