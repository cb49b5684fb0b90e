"""A copy of an answered request: answered once more by a shadow, and the first labels of both answers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from model_store.names import name_of
from service.serving.answer import answer_query
from service.serving.oip import answer_infer, parse_infer
from service.serving.parse import parse_predict
from service.serving.served import ServedVersion
from service.serving.tensors import binary_texts
from service.settings import Limits

TOPS = (1, 5)
"""How many of the first labels are compared."""

Labels = list[list[str]]
"""The names of the first labels of each row, max(TOPS) at most."""


class TensorsTold(NamedTuple):
    """What is told of a request of the Open Inference Protocol besides its body, and of its answer.

    header  how many bytes of the body are JSON, as the request says; None: it does not
    n_json  how many of the answer are; None: all
    """

    header: str | None
    n_json: int | None


class ShadowCopy(NamedTuple):
    """A request, its answer, the version that gave it, and the shadow.

    tensors  of a request of the Open Inference Protocol; None: it is one of predict
    """

    body: bytes
    answer: bytes
    answered: ServedVersion
    shadow: ServedVersion
    tensors: TensorsTold | None = None

    @property
    def n_bytes(self) -> int:
        """Return how much memory it holds."""
        return len(self.body) + len(self.answer)

    def answer_again(self, limits: Limits, stop: NDArray[np.uint8]) -> bytes:
        """Return the shadow's answer, JSON; once `stop` is set, what is sure. Raises as an answer does."""
        if self.tensors is None:
            query = parse_predict(self.body, limits).model_copy(update={"explain": False})
            return answer_query(query, self.shadow, stop)
        infer = parse_infer(self.body, self.tensors.header, limits)._replace(outputs={"labels": False})
        return b"".join(answer_infer(infer, self.shadow, stop).parts)

    def first_labels(self, again: bytes) -> tuple[Labels, Labels]:
        """Return the labels that were answered, and those of the shadow's answer.

        None where the request asked for tensors that name no labels.
        """
        if self.tensors is None:
            return _of_predict(self.answer), _of_predict(again)
        returned = _of_tensors(self.answer, self.tensors.n_json, self.answered)
        return returned, _of_tensors(again, None, self.shadow) if returned else []


def compare(
    returned: Sequence[Sequence[str]], shadow: Sequence[Sequence[str]]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return how many of the first labels were compared, for each of TOPS, and how many both have.

    Of a row at most so many as the longer of its two lists has: a label that only one gives is no agreement.
    """
    compared, agreed = [0] * len(TOPS), [0] * len(TOPS)
    for mine, other in zip_longest(returned, shadow, fillvalue=()):
        for i, top in enumerate(TOPS):
            compared[i] += min(top, max(len(mine), len(other)))
            agreed[i] += len(set(mine[:top]) & set(other[:top]))
    return tuple(compared), tuple(agreed)


def _of_predict(answer: bytes) -> Labels:
    predictions = orjson.loads(answer)["predictions"]
    return [[label["label"] for label in one["labels"][: max(TOPS)]] for one in predictions]


def _of_tensors(answer: bytes, n_json: int | None, served: ServedVersion) -> Labels:
    """Return the first labels by the tensor of their names, else by that of their ids; none without both."""
    at = len(answer) if n_json is None else n_json
    outputs: dict[str, list[list[Any]]] = {}
    for output in orjson.loads(answer[:at])["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size", 0)
        name, shape, binary = output["name"], output["shape"], answer[at : at + size]
        at += size
        if name not in ("labels", "label_ids"):
            continue
        n_rows, places = shape
        data = output.get("data")
        if data is None and name == "labels":
            data = binary_texts(binary, n_rows * places, name)
        elif data is None:
            data = np.frombuffer(binary, "<i4").tolist()
        outputs[name] = [data[row * places : (row + 1) * places][: max(TOPS)] for row in range(n_rows)]
    if "labels" in outputs:
        return [[label for label in row if label] for row in outputs["labels"]]
    return [[name_of(served.labels, i) for i in row if i >= 0] for row in outputs.get("label_ids", ())]
