"""Changes of a remote store, and followers of it."""

from xylem.admin.registry.follower import RemoteFollower
from xylem.admin.registry.remote import (
    RemoteStore,
    RemoteVersion,
)
from xylem_store.alias import (
    promoted,
)
from xylem_store.remote_index import RemoteModel
from xylem_store.store import Store


def move(remote: RemoteStore, alias: str, version: RemoteVersion) -> RemoteModel:
    return remote.change("m", {alias: promoted(version.version)}, version)


def followed(remote: RemoteStore, there: Store, keep: int = 0) -> RemoteFollower:
    return RemoteFollower(remote, there, poll_seconds=3600, keep=keep)
