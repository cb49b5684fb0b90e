"""Dialect of the Open Inference Protocol: tensors become labels, and these become tensors."""

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import orjson

from xylem.base import WRITE, BadInput, Limits, StageTimings
from xylem.engine import (
    Featurizer,
    PlacedLabels,
    Predictions,
    PredictOptions,
    RowsRead,
    Signed,
    placed,
)
from xylem.serving.batches.lines import dump
from xylem.serving.dialects.dialect import Body, Query, Reply
from xylem.serving.dialects.predict.schema import TUNED
from xylem.serving.dialects.search import SearchDialect
from xylem.serving.dialects.tensors.reading import (
    HEADER,
    InferPlan,
    InferRows,
    binary_texts,
    json_length,
    read_plan,
    read_rows,
)
from xylem.serving.dialects.tensors.schema import InferParameters
from xylem.serving.dialects.tensors.writing import write_outputs
from xylem.serving.live.served import ServedVersion
from xylem.serving.rows import ChunkedRows
from xylem_store import name_of


@dataclass(frozen=True)
class InferQuery(Query):
    """A request that has been read."""

    plan: InferPlan
    instances: InferRows

    @property
    def options(self) -> InferParameters:  # type: ignore[override]
        """Return how to predict."""
        return self.plan.options

    @property
    def n_rows(self) -> int:  # type: ignore[override]
        """Return the number of instances."""
        return self.plan.n_rows

    def n_items(self, featurizer: Featurizer) -> int:
        """Return the characters, as often as the featurizer counts them, or the features."""
        texts, csr = self.instances
        if csr is not None:
            return len(csr[1])
        return featurizer.items_a_character * sum(map(len, texts or ()))

    def to_rows(self, featurizer: Featurizer) -> ChunkedRows:
        """Return the rows of the instances. Raises BadInstance for what the model does not take."""
        texts, csr = self.instances
        try:
            if csr is None:
                rows = featurizer.transform_texts(texts or [])
            else:
                rows = featurizer.transform_csr(*csr)
        except BadInput as error:
            within = (error.path or "").replace("instances", "rows", 1)
            raise error.at(within or ("inputs[0]" if csr is None else "inputs")) from None
        return ChunkedRows(rows, None, [])

    def reply(
        self,
        found: Predictions,
        chunked: ChunkedRows,
        options: PredictOptions,
        epoch: int,
        served: ServedVersion,
    ) -> Reply:
        """Return the answer: the outputs that are asked for."""
        return self.reply_of(placed(found, self.options.top_r), epoch, served)

    def reply_of(self, found: PlacedLabels, epoch: int, served: ServedVersion) -> Reply:
        """Return the answer with these labels."""
        plan = self.plan
        json, binary = write_outputs(served.labels, plan.outputs, plan.options.top_r, found)
        head = _head(served.name, served.version, epoch)
        tail = b"]}" if plan.identity is None else b'],"id":%b}' % dump(plan.identity)
        is_tuned = plan.options.threshold == TUNED
        if not binary:
            return Reply((head, json, tail), plan.n_rows, is_tuned)
        n_json = len(head) + len(json) + len(tail)
        return Reply((head, json, tail, binary), plan.n_rows, is_tuned, n_json)

    def compared(self) -> Query:
        """Return the request for the names of labels."""
        return replace(self, plan=replace(self.plan, outputs={"labels": False}))


class TensorDialect(SearchDialect):
    """Requests of tensors: JSON, or what clients call neither, with binary data behind it."""

    media = frozenset({b"application/json", b"application/octet-stream", b""})
    header = HEADER

    def answer_rows(
        self,
        query: Query,
        rows: RowsRead,
        signed: Signed,
        served: ServedVersion,
        timings: StageTimings,
    ) -> Reply | None:
        """Do as `SearchDialect.answer_rows`."""
        assert isinstance(query, InferQuery)
        found = served.fast.search(rows, signed)
        if found is None:
            return None
        timings.begin()
        reply = query.reply_of(found, signed[1], served)
        timings.end(WRITE)
        return reply

    def read(self, body: Body, limits: Limits) -> Query:
        """Return the request that a body is."""
        return parse_infer(body.content, body.said, limits)

    def first_labels(
        self, reply: bytes, n_json: int | None, most: int, served: ServedVersion
    ) -> list[list[str]]:
        """Return the first labels by the tensor of their names, else by that of their ids.

        Return an empty list for an answer that has neither.
        """
        position = len(reply) if n_json is None else n_json
        outputs: dict[str, list[list[Any]]] = {}
        for output in orjson.loads(reply[:position])["outputs"]:
            size = output.get("parameters", {}).get("binary_data_size", 0)
            name = output["name"]
            binary = reply[position : position + size]
            position += size
            if name not in ("labels", "label_ids"):
                continue
            n_rows, n_places = output["shape"]
            data = output.get("data")
            if data is None and name == "labels":
                data = binary_texts(binary, n_rows * n_places, name)
            elif data is None:
                data = np.frombuffer(binary, "<i4").tolist()
            outputs[name] = [
                data[row * n_places : (row + 1) * n_places][:most] for row in range(n_rows)
            ]
        if "labels" in outputs:
            return [[label for label in row if label] for row in outputs["labels"]]
        return [
            [name_of(served.labels, i) for i in row if i >= 0]
            for row in outputs.get("label_ids", ())
        ]


TENSORS = TensorDialect()


def parse_infer(body: bytes, header: str | None, limits: Limits) -> InferQuery:
    """Return the request that a body is.

    header   what HEADER says; None if the body is all JSON

    Raises MalformedJson, BadRequest, LimitExceeded or UnsupportedOption, naming the place.
    """
    n_json = len(body) if header is None else json_length(header, len(body))
    plan = read_plan(body[:n_json], len(body) - n_json, limits)
    return InferQuery(plan, read_rows(plan, memoryview(body)[n_json:]))


@functools.lru_cache(1024)
def _head(model: str, version: int, epoch: int) -> bytes:
    shown = b',"threshold_epoch":%d' % epoch if epoch else b""
    head = b'{"model_name":"%b","model_version":"%d","parameters":{"version":%d%b},"outputs":['
    return head % (model.encode(), version, version, shown)
