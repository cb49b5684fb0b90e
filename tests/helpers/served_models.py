"""Publish small models of each kind of features in a store, for the tests of serving."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.helpers.small_models import small_draft
from xylem.base.settings import Limits
from xylem.base.stages import StageTimings
from xylem.datasets import read_dataset
from xylem.engine.features.parameters import parameters_of
from xylem.engine.features.registry import fit_featurizer
from xylem.serving.dialects.dialect import Body, Reply
from xylem.serving.dialects.predict.dialect import PREDICT
from xylem.serving.dialects.search import SearchDialect
from xylem.serving.live.served import ServedVersion
from xylem_store.manifest import Manifest
from xylem_store.store import Store

TEXTS = [
    "a small text editor for the terminal",
    "library to read and write images",
    "compiler for a small language",
    "game of chess with a terminal interface",
    "daemon that synchronises files over the network",
    "fonts for the terminal",
]
NAMED = [{"red": 1.0, "green": 0.5}, {"blue": 2.0}, {"green": 1.0, "blue": 0.25, "alpha": 3.0}]


def publish_model(store: Store, name: str, kind: str, seed: int = 0, **shape: Any) -> Manifest:
    """Publish random label trees.

    kind   the kind of features: raw, named, or a kind of features of texts
    shape  n_labels and n_trees
    """
    shape = {"n_labels": 11, "n_trees": 2, **shape}
    if kind == "raw":
        return store.publish(
            name, small_draft(seed, features={"kind": "raw", "norm": "l2"}, **shape)
        )
    instances = (
        [{"features": x} for x in NAMED] if kind == "named" else [{"text": x} for x in TEXTS]
    )
    with TemporaryDirectory() as directory:
        file = Path(directory) / "train.jsonl"
        file.write_text(
            "".join(json.dumps({**x, "labels": ["label::0"]}) + "\n" for x in instances)
        )
        dataset = read_dataset(file)
    chosen = parameters_of({"kind": kind, **({"n_features": 256} if kind == "hashing" else {})})
    featurizer, _ = fit_featurizer(dataset, chosen)
    featurizer_fields = {
        "n_features": featurizer.n_features,
        "features": featurizer.config(),
        "extra": featurizer.arrays(),
    }
    return store.publish(name, small_draft(seed, **shape, **featurizer_fields))


def publish_all(root: Path) -> Store:
    """Publish a model of each kind: raw (two versions), named, text (tf-idf) and hashed."""
    store = Store(root)
    publish_model(store, "raw", "raw", seed=1)
    publish_model(store, "raw", "raw", seed=2)
    publish_model(store, "named", "named")
    publish_model(store, "text", "tfidf")
    publish_model(store, "hashed", "hashing")
    store.promote("raw", 1, "stable")
    return store


def reply_of(body: bytes, served: ServedVersion, dialect: SearchDialect = PREDICT) -> Reply:
    """Return the answer that is computed in a thread."""
    return dialect.answer_fully(dialect.read(Body(body), Limits()), served)


def in_thread(body: bytes, served: ServedVersion, dialect: SearchDialect = PREDICT) -> bytes:
    """Return the bytes of the answer that is computed in a thread."""
    return b"".join(reply_of(body, served, dialect).parts)


def at_once(body: bytes, served: ServedVersion, dialect: SearchDialect = PREDICT) -> bytes | None:
    """Return the bytes of the answer in the event loop; None if a thread must compute it."""
    reply = dialect.answer(Body(body), served, Limits(), StageTimings())
    return b"".join(reply.parts) if isinstance(reply, Reply) else None
