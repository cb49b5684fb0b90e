"""`python -m service.warm [answers]`: compile all kernels, or those that answers need while another process
trains.

Status 0, or 2 where the environment asks for what is not there.
"""

import sys

import numpy as np

from model_store.build import build_ensemble
from model_store.compiled.faults import BadProcessor
from model_store.ensemble import Chunk, Tree
from model_store.manifest import DataInfo, TrainerInfo
from model_store.names import build_names
from model_store.version import Draft, Model, model_of
from service.base.settings import Limits
from service.features.parameters import TfidfParameters
from service.features.tfidf import fit_tfidf
from service.serving.blocks import answer_block
from service.serving.lines import LineBlock
from service.serving.opening import serve_model
from service.serving.rows import to_options
from service.serving.schemas.predict import Options

_TEXTS = ["a text", "another text"]


def text_model() -> Model:
    """Return a label tree of two labels for texts."""
    featurizer, _ = fit_tfidf(_TEXTS, TfidfParameters())
    chunk = Chunk(
        features=np.zeros(1, np.int32),
        row_ptr=np.array([0, 2], np.int64),
        child=np.arange(2, dtype=np.int32),
        weight=np.ones(2, np.float32),
        bias=np.zeros(2, np.float32),
    )
    tree = Tree(np.array([1, 3, 3, 3], np.int32), np.array([-1, 0, 1], np.int32), [chunk, None, None])
    draft = Draft(
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
    return model_of(draft)


def compile_answers() -> None:
    """Compile what a server and a batch of texts need."""
    served = serve_model(text_model())
    answer_block(LineBlock(1, [b'{"text":"a text"}']), served, to_options(Options(), served), Limits())


_BAD_INPUT = 2


def main() -> int:
    """Compile all kernels, or those of answers; what stands in the way is one line on standard error."""
    try:
        if sys.argv[1:] == ["answers"]:
            compile_answers()
        else:
            from service.warm.kernels import compile_all  # looks at the environment while it is imported

            compile_all()
    except BadProcessor as error:
        sys.stderr.write(f"xylem: {error}\n")
        return _BAD_INPUT
    return 0


if __name__ == "__main__":
    sys.exit(main())
