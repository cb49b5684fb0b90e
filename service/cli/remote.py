"""`xylem models push` and `pull`: versions out to an object store, and in from one."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from model_store.errors import AliasNotFound
from service.cli.console import mebibytes, print_result
from service.cli.options import DEFAULT_STORE, Json, Model, StoreDir, parse_reference
from service.errors import BadInput

if TYPE_CHECKING:
    from model_store.store import Store
    from service.remote.documents import RemoteVersion
    from service.remote.objects import RemoteStore

app = typer.Typer(help="Object stores: a part of `xylem models`.")

Url = Annotated[
    str,
    typer.Argument(metavar="URL", help="An object store: s3://BUCKET/PREFIX, or another of fsspec's."),
]


@app.command()
def push(
    model: Model,
    url: Url,
    alias: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="An alias there that names the version from now on; may repeat."),
    ] = None,
    canary: Annotated[
        str | None,
        typer.Option(metavar="PART", help="The aliases stay; it answers this part of their requests: 10%."),
    ] = None,
    shadow: Annotated[
        str | None,
        typer.Option(metavar="PART", help="The aliases stay; it answers this part too, unreturned: 100%."),
    ] = None,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Write a version to an object store, unless it is there; servers that follow its aliases fetch it.

    The model's label info goes with it, and what the aliases deny here is denied there too.
    """
    from model_store.store import Store
    from service.cli.splits import beside as text_beside
    from service.cli.splits import part_beside
    from service.remote.objects import RemoteStore

    opened, remote = Store(store), RemoteStore(url)
    name, reference = parse_reference(model)
    version = opened.resolve(name, reference)
    beside = part_beside(canary, shadow)
    if beside is not None and not alias:
        raise BadInput("--canary, --shadow: expected --alias, whose requests they are of, found none")
    pushed = remote.push(opened, name, version)
    info = remote.push_label_info(opened, name)
    moved = ""
    for one in alias or ():
        deny_as_here(remote, opened, name, one)
        if beside is None:
            remote.move(name, one, pushed)
            moved += f"\n{name}: {one} -> {version}"
        else:
            split = remote.put_beside(name, one, beside[0], pushed, beside[1]).local()
            moved += f"\n{name}: {one} -> {split.stable}{text_beside(split)}"
    facts = {"model": name, "version": version, "digest": pushed.digest, "aliases": alias or []}
    facts["label_info"] = info and info.digest
    print_result(json, f"{name}@{version} -> {remote.url}{moved}", url=remote.url, **facts)


@app.command()
def pull(model: Model, url: Url, store: StoreDir = DEFAULT_STORE, json: Json = False) -> None:
    """Fetch a version from an object store, by its number or an alias there; no alias here moves.

    But `latest` names a model's first version. All digests are checked before it is published. Label info
    comes with it unless the model has some here.
    """
    from model_store.store import Store
    from service.remote.objects import RemoteStore

    remote = RemoteStore(url)
    name, reference = parse_reference(model)
    opened = Store(store)
    manifest = remote.pull(opened, name, _found(remote, name, reference))
    _, info = remote.label_info(name)
    if info is not None and opened.label_info_head(name) is None:
        remote.pull_label_info(opened, name, info)
    line = f"{remote.url} -> {name}@{manifest.version} ({mebibytes(manifest.model_bytes)})"
    print_result(json, line, url=remote.url, model=name, version=manifest.version)


def deny_as_here(remote: RemoteStore, store: Store, model: str, alias: str) -> None:
    """Have an alias there deny also what that of the store denies, before it names another version."""
    with contextlib.suppress(AliasNotFound):
        if labels := store.denied(model, alias):
            remote.change_denied(model, alias, lambda before: {*before, *labels})


def _found(remote: RemoteStore, name: str, reference: str) -> RemoteVersion:
    """Return what a number or an alias stands for there."""
    if reference.isdecimal():
        return remote.find(name, int(reference))
    aliases = remote.aliases(name).aliases
    if reference not in aliases:
        there = ", ".join(sorted(aliases)) or "none"
        raise BadInput(f"{remote.url}: expected an alias of {name}, one of {there}, found {reference!r}")
    return aliases[reference]
