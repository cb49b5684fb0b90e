"""What to train on, and how; what of it does not go together is refused before anything is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model_store.ensemble import Weights
from service.base.columns import DEFAULT_COLUMNS, TableColumns
from service.base.errors import BadParameter
from service.datasets.parts import STDIN
from service.trainers.registry import TRAINERS
from service.workflows.parameters import Chosen, from_json, parse


@dataclass(frozen=True)
class TrainRequest:
    """What to train on, and how.

    data        a file, or STDIN: lines that are learnt as they come
    parameters  "key=value" each, or the values of a JSON object by name; those whose names begin with
                "features." are the features', others the trainer's
    label_names  for numeric data files: line i + 1 is the name of label i
    columns     of data and valid, where they are tables
    weights     the type in which weights are stored
    stream      read the data again for each pass, and never hold it in memory
    origin      fields of the version's origin (`model_store.origin`), as its job; its parent is what `latest`
                names before, unless it is given here
    latest      whether `latest` moves to what is published; it always does to a first version
    calibrate   whether scores are fitted to the validation rows (`service.workflows.calibrate`)
    made_for    an id for which a version is published once: if there is one already, it stays the only one
    """

    trainer: str
    data: Path
    valid: Path | None = None
    parameters: Sequence[str] | Mapping[str, Any] = ()
    label_names: Path | None = None
    columns: TableColumns = DEFAULT_COLUMNS
    weights: Weights = "float32"
    seed: int = 0
    threads: int = 1
    stream: bool = False
    origin: Mapping[str, Any] = field(default_factory=dict)
    latest: bool = True
    calibrate: bool = False
    made_for: str | None = None

    def chosen(self) -> Chosen:
        """Return the parameters. Raises BadParameter, which tells all that is wrong."""
        if isinstance(self.parameters, Mapping):
            return from_json(self.trainer, dict(self.parameters))
        return parse(self.trainer, self.parameters)

    def check(self, finds_thresholds: bool) -> None:
        """Raise BadParameter for what cannot be had together.

        finds_thresholds  beside the training
        """
        is_standard_input = self.data == STDIN
        if self.calibrate and self.valid is None:
            raise BadParameter("calibrate: expected a validation file to fit to, found none")
        is_exact = self.trainer in TRAINERS and TRAINERS[self.trainer].is_exact
        if self.calibrate and (is_standard_input or is_exact):
            found = "standard input" if is_standard_input else f"{self.trainer}, whose sum to 1"
            raise BadParameter(f"calibrate: expected a file, and a trainer of scores a label, found {found}")
        if finds_thresholds and not self.stream:
            raise BadParameter(
                "thresholds: expected --stream, found training in memory: use xylem thresholds"
            )
        if finds_thresholds and self.calibrate:
            raise BadParameter("thresholds: expected scores as they are trained, found --calibrate")
        if is_standard_input and (self.stream or self.label_names is not None):
            raise BadParameter("expected a file with --stream and --label-names, found standard input")
