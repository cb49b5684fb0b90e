"""Sentence encoders of versions: they make the vectors of texts, once for all that needs them."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from xylem.base import (
    BadData,
    Crew,
    Dataset,
    OnProgress,
    load_extra,
    n_processors,
    unfinished,
)
from xylem_store import F32, U8, EncoderArrays, Store

# Texts that are encoded together, one after the other: about a second of one thread.
BLOCK_TEXTS = 128

# The most bytes of vectors that a store keeps for later trainings: of 2 million texts and more.
STORED_BYTES_MAX = 4 << 30

_FOLDER = "encoded"


@dataclass(frozen=True)
class TextEncoder:
    """A sentence encoder as a version has it.

    name                its name in the store that the version was trained in
    prefix, max_tokens  as in VectorParameters
    """

    name: str
    arrays: EncoderArrays
    prefix: str
    max_tokens: int

    def workspace(self) -> Any:
        """Return the encoder, which all threads share. Raises BadParameter without its library."""
        return load_extra("encoder").open_encoder(self.arrays, self.prefix, self.max_tokens)

    def run(self, texts: Sequence[str], encoder: Any, stop: U8 | None = None) -> F32:
        """Return the vectors of texts, float32[n, numbers], each encoded alone."""
        return np.array([encoder.encode(text) for text in texts], np.float32).reshape(
            len(texts), encoder.dims
        )

    def with_vectors(
        self, dataset: Dataset, crew: Crew, on_progress: OnProgress, store: Store | None
    ) -> Dataset:
        """Return a data set with a vector for each text.

        store  keeps the vectors, so that the same texts need not be encoded again; None: they are
               not kept

        Cost: about 10 ms a text and thread. Raises BadData for rows that are no texts.
        """
        if dataset.texts is None or dataset.vectors is not None:
            raise BadData(
                f"{dataset.source}: expected texts alone for features.encoder, found "
                f"{'vectors beside them' if dataset.texts else 'rows of features'}"
            )
        texts = dataset.texts
        blocks = [texts[start : start + BLOCK_TEXTS] for start in range(0, len(texts), BLOCK_TEXTS)]
        folder = None if store is None else store.root / _FOLDER / self._folder_name()
        stored = [
            None if folder is None else folder / f"{_digest_of(block)}.npy" for block in blocks
        ]
        vectors = [_read(file) for file in stored]
        missing = [i for i, of_block in enumerate(vectors) if of_block is None]
        n_done = len(blocks) - len(missing)
        for i, result in zip(missing, crew.mapped(self, (blocks[i] for i in missing)), strict=True):
            vectors[i] = result
            if (file := stored[i]) is not None:
                with unfinished(file) as out:
                    np.save(out, result, allow_pickle=False)
            n_done += 1
            on_progress("encode", min(n_done * BLOCK_TEXTS, len(texts)), len(texts))
        if folder is not None and missing:
            _remove_oldest(folder.parent)
        return replace(
            dataset, vectors=np.concatenate([block for block in vectors if block is not None])
        )

    @contextmanager
    def remembering(
        self,
        parts: Iterable[Dataset],
        on_progress: OnProgress,
        store: Store | None,
        crew: Crew | None = None,
    ) -> Iterator[None]:
        """Encode the texts of data sets once: within the block, none of them is encoded again.

        crew  None: as many threads as there are processors

        Vectors beside the texts are not read. Raises as `with_vectors`. Cost: the block keeps the
        vectors in memory.
        """
        encoder = self.workspace()
        earlier = encoder.vectors
        crew = crew or Crew(n_processors())
        try:
            for part in parts:
                encoded = self.with_vectors(replace(part, vectors=None), crew, on_progress, store)
                assert encoded.texts is not None and encoded.vectors is not None
                vectors = dict(zip(encoded.texts, encoded.vectors, strict=True))
                encoder.vectors = {**encoder.vectors, **vectors}
            yield
        finally:
            encoder.vectors = earlier

    def _folder_name(self) -> str:
        """Return the name of the folder of what the encoder has made with these libraries."""
        facts = (
            self.arrays.digest,
            self.prefix,
            self.max_tokens,
            sorted(load_extra("encoder").library_versions().items()),
        )
        return sha256(repr(facts).encode()).hexdigest()


def _digest_of(texts: list[str]) -> str:
    digest = sha256()
    for text in texts:
        content = text.encode("utf-8", "surrogatepass")
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


def _read(file: Path | None) -> F32 | None:
    """Return stored vectors, None if there are none or they are damaged."""
    try:
        return None if file is None else np.asarray(np.load(file, allow_pickle=False), np.float32)
    except (OSError, ValueError, EOFError):
        return None


def _remove_oldest(folder: Path) -> None:
    files = sorted(folder.rglob("*.npy"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file, n_bytes in zip(files, accumulate(file.stat().st_size for file in files), strict=True):
        if n_bytes > STORED_BYTES_MAX:
            file.unlink(missing_ok=True)
