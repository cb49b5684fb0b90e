"""The files of sentence encoders in a store, kept by content.

An encoder is three arrays. Every version that was trained with it has them too, so that it needs
nothing beside it, and exports, imports and object stores carry them as all arrays. In a store they
are one file with several names (hard links): in `encoders/SHA256/`, and in each version. So the
file system counts who needs an encoder. The alternative would have been versions that name an
encoder elsewhere, which can be missing.

`encoders/NAME.json` gives an encoder a name, by which a training finds it. Files of an encoder
without a name, which no version has any more, are removed before the next write.
"""

import contextlib
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from numpy.typing import NDArray

from xylem_store.arrays import ArrayInfo, group_of, info_of, take
from xylem_store.compiled.handles import U8
from xylem_store.documents import object_of, parse_sealed, record, render_sealed
from xylem_store.errors import Corrupt
from xylem_store.fs import FileSystem, remove_tree
from xylem_store.identifiers import is_model
from xylem_store.manifest import ARRAY_ENTRY, ARRAY_NAME

ENCODERS = "encoders"
SUFFIX = ".json"
DOCUMENT_BYTES_MAX = 4096  # three entries of arrays take 600
_is_digest = re.compile("[0-9a-f]{64}").fullmatch


class EncoderArrays(NamedTuple):
    """The arrays of an encoder, uint8[n] each: in a version they are the group `encoder`.

    config     a JSON object: "dims", the length of a vector, and "pooling"
    model      the graph with its weights, a file in the format ONNX
    tokenizer  a file in the format of the library tokenizers
    """

    config: U8
    model: U8
    tokenizer: U8

    @classmethod
    def among(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the arrays of the encoder among those of a version. Raises Corrupt."""
        return cls(*(take(arrays, name, "uint8", (None,)) for name in ENCODER_NAMES))

    @property
    def by_name(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by their names in a version."""
        return group_of("encoder", self)

    @property
    def digest(self) -> str:
        """Return the SHA-256 that identifies the encoder. Cost: a pass over its bytes."""
        return digest_of({name: info_of(name, array) for name, array in self.by_name.items()})


ENCODER_NAMES = tuple(f"encoder/{field}" for field in EncoderArrays._fields)
_DOCUMENT = record(dict, arrays=object_of(ARRAY_ENTRY, len(ENCODER_NAMES), ARRAY_NAME))


class EncoderInfo(NamedTuple):
    """An encoder of a store: its name, the entries of its arrays, and how many versions have it."""

    name: str
    arrays: Mapping[str, ArrayInfo]
    n_versions: int = 0

    @property
    def digest(self) -> str:
        """Return the SHA-256 that identifies the encoder, whatever its name."""
        return digest_of(self.arrays)

    @property
    def n_bytes(self) -> int:
        """Return the size of its files."""
        return sum(info.bytes for info in self.arrays.values())

    def render(self) -> bytes:
        """Return the bytes of its document."""
        return render_sealed(
            {"arrays": {name: info._asdict() for name, info in self.arrays.items()}}
        )


def remove_unused(fs: FileSystem, root: Path) -> None:
    """Remove the files of encoders that have no name, and that no version has.

    Nothing is removed while a writer of encoders holds their lock, or if a document is damaged.
    """
    home = root / ENCODERS
    with contextlib.suppress(Corrupt, FileNotFoundError, NotADirectoryError):
        folders = [entry.name for entry in fs.entries(home) if _is_digest(entry.name)]
        lock = fs.lock(home / "lock") if folders else None
        if lock is None:
            return
        with fs.closing(lock):
            named_digests = {
                parse_document(name, fs.read(home / entry.name, DOCUMENT_BYTES_MAX)).digest
                for entry in fs.entries(home)
                if (name := encoder_in(entry.name))
            }
            for folder in set(folders) - named_digests:
                if n_versions(fs, home / folder) == 0:
                    remove_tree(fs, home / folder)


def digest_of(infos: Mapping[str, ArrayInfo]) -> str:
    """Return the SHA-256 of the lines "sha256  name" of an encoder's arrays, sorted by name."""
    return hashlib.sha256(
        "".join([f"{infos[name].sha256}  {name}\n" for name in ENCODER_NAMES]).encode()
    ).hexdigest()


def parse_document(name: str, data: bytes) -> EncoderInfo:
    """Return the encoder that a document names. Raises Corrupt."""
    where = f"encoder {name}"
    infos = _DOCUMENT(parse_sealed(data, where), where)["arrays"]
    if tuple(sorted(infos)) != ENCODER_NAMES:
        raise Corrupt(where, f"the arrays {', '.join(ENCODER_NAMES)}", ", ".join(sorted(infos)))
    return EncoderInfo(name, infos)


def encoder_in(file: str) -> str | None:
    """Return the encoder whose document is in a file of this name, None for other files."""
    name = file.removesuffix(SUFFIX)
    return name if name != file and is_model(name) else None


def n_versions(fs: FileSystem, folder: Path) -> int:
    """Return how many versions have the files of a folder, besides the store itself."""
    return max((fs.n_names(folder / file.name) - 1 for file in fs.entries(folder)), default=0)
