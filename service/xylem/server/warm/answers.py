"""Compile the kernels of answers while another process trains: `python -m xylem.warm answers`.

A tree of two labels is built here and answers, as each model does when it is opened.
"""

import numpy as np

from xylem.base import Limits
from xylem.engine import TfidfParameters, fit_tfidf
from xylem.serving import LineBlock, Options, answer_block, serve_model, to_options
from xylem_store import (
    Chunk,
    DataInfo,
    Draft,
    Model,
    TrainerInfo,
    Tree,
    build_ensemble,
    build_names,
    model_of,
)

_TEXTS = ["a text", "another text"]


def text_model() -> Model:
    """Return a label tree of two labels for texts."""
    featurizer, _ = fit_tfidf(_TEXTS, TfidfParameters())
    tree = Tree(
        np.array([1, 3, 3, 3], np.int32),
        np.array([-1, 0, 1], np.int32),
        [
            Chunk(
                features=np.zeros(1, np.int32),
                row_ptr=np.array([0, 2], np.int64),
                child=np.arange(2, dtype=np.int32),
                weight=np.ones(2, np.float32),
                bias=np.zeros(2, np.float32),
            ),
            None,
            None,
        ],
    )
    return model_of(
        Draft(
            kind="label-tree",
            link="hinge3",
            weights="float32",
            n_features=featurizer.n_features,
            trainer=TrainerInfo("label-tree", {}),
            seed=0,
            data=DataInfo("none", len(_TEXTS), "0" * 64),
            metrics={},
            features=featurizer.config(),
            ensemble=build_ensemble([tree], 2, featurizer.n_features),
            labels=build_names(["one", "other"]),
            extra=featurizer.arrays(),
        )
    )


def compile_answers() -> None:
    """Compile the kernels that a server and a batch of texts need."""
    served = serve_model(text_model())
    answer_block(
        LineBlock(1, [b'{"text":"a text"}']), served, to_options(Options(), served), Limits()
    )
