"""The fields of a training, made from the job's by `python -m tests.training_fields`."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class TrainingFields(TypedDict, total=False):
    """Fields of a training; the server has defaults for those left out, or None."""

    text_column: Sequence[str] | None
    label_column: str | None
    label_separator: str | None
    delimiter: str | None
    label_columns: Sequence[str] | None
    quote: str | None
    encoding: str | None
    join_rows: str | None
    strict: bool | None
    weight_column: str | None
    vector_column: str | None
    vectors: str | Sequence[str] | None
    valid: str | Mapping[str, Any] | None
    thresholds: Mapping[str, Any] | None
    promotion: Mapping[str, Any] | None
    split: float | None
    seed: int | None
    """Same seed, same data: the same model."""
    calibrate: bool | None
    """Fit scores to the validation rows, so that they are probabilities."""
    rerank: bool | None
    """Re-rank by similar training rows, if held-out rows gain. Takes five to eight times as
    long."""
    weights: Literal["float32", "bfloat16", "int8"] | None
    """Store weights as float32, bfloat16 or int8; measures what that costs."""
    keep_rows: bool | None
    """Store the rows with the version: then xylem extend needs no --rows."""
    keep_state: bool | None
    """Store the state of the training, to continue it later: plt with solver=sgd, huffman-tree,
    learned-tree, lomtree."""
    until: int | None
    """With keep_state: stop after this pass; 0: after all planned passes."""
    parameters: Mapping[str, Any] | None
    """Those of the trainer, by name; those of the features, as "features.NAME"."""
    label_names: str | None
    """For numeric data files: line i + 1 is the name of label i."""
    executor: Literal["local", "ray"] | None
    """ray: the nodes of the cluster at XYLEM_RAY_ADDRESS run the steps."""
    idempotency_key: str | None
