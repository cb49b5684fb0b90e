"""Dialect of the Open Inference Protocol: tensors become labels, and these become tensors."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
from msgspec.structs import replace

from xylem.base import READ, BadInput, BadInstance, Limits, StageTimings, did_you_mean, what_is
from xylem.engine import Featurizer, Predictions, PredictOptions
from xylem.serving.batches.lines import dump
from xylem.serving.dialects.dialect import Body, Longer, Query, Reply
from xylem.serving.dialects.predict.schema import TUNED
from xylem.serving.dialects.search import SHORT_BEAMS, SearchDialect
from xylem.serving.dialects.tensors.elements import binary_texts
from xylem.serving.dialects.tensors.reading import (
    HEADER,
    InferPlan,
    InferRows,
    PackedTensors,
    json_length,
    read_packed,
    read_plan,
    read_rows,
)
from xylem.serving.dialects.tensors.schema import INPUTS
from xylem.serving.dialects.tensors.writing import outputs_of, pack_predictions, write_outputs
from xylem.serving.live.served import ServedVersion
from xylem.serving.rows import ChunkedRows
from xylem_store import name_of


class InferQuery(Query):
    """A request that has been read."""

    def __init__(self, plan: InferPlan, instances: InferRows) -> None:
        self.plan = plan
        self.instances = instances
        self.options = plan.options
        self.n_rows = plan.n_rows

    def n_items(self, featurizer: Featurizer) -> int:
        """Return the number of features, or the characters times `items_a_character`."""
        texts, csr, vectors, fields = self.instances
        if csr is not None:
            return len(csr[1])
        weights = dict(featurizer.fields)
        n_characters = sum(map(len, texts or ())) + sum(
            weights.get(name, 1) * len(cell)
            for cells in fields or ()
            for name, cell in cells.items()
        )
        n_numbers = 0 if vectors is None else vectors.size
        return featurizer.items_a_character * n_characters + n_numbers

    def to_rows(self, featurizer: Featurizer) -> ChunkedRows:
        texts, csr, vectors, fields = self.instances
        try:
            if fields is not None:
                if not featurizer.fields:
                    name = min(fields[0].keys() - INPUTS.keys())
                    raise BadInstance(
                        "expected the tensor text, because this model was trained without fields, "
                        f"found {what_is(name)}{did_you_mean(name, INPUTS)}"
                    )
                texts = list(map(featurizer.fields.text, fields))
            rows = (
                featurizer.transform_with_vectors(texts or [], vectors)
                if csr is None
                else featurizer.transform_csr(*csr)
            )
        except BadInput as error:
            within = (error.path or "").replace("instances", "rows", 1)
            raise error.with_path(
                within or ("inputs[0]" if self.instances.texts else "inputs")
            ) from None
        return ChunkedRows(rows, None, [])

    def reply(
        self,
        predictions: Predictions,
        chunked: ChunkedRows,
        options: PredictOptions,
        epoch: int,
        served: ServedVersion,
    ) -> Reply:
        """Return the answer: the requested outputs."""
        data, ends = pack_predictions(served.labels, self.plan.outputs, predictions)
        return _reply(self.plan, data, ends, epoch, served)

    def compared(self) -> Query:
        """Return the request for the names of labels."""
        return InferQuery(
            replace(
                self.plan, outputs=outputs_of({"labels": False}, self.n_rows, self.options.top_r)
            ),
            self.instances,
        )


class TensorDialect(SearchDialect):
    """Reads and answers requests of tensors.

    Their bodies are JSON, or JSON with binary data behind it: for these, clients send the content
    type application/octet-stream, or none.
    """

    media = frozenset({b"application/json", b"application/octet-stream", b""})
    header = HEADER

    def answer(
        self, body: Body, served: ServedVersion, limits: Limits, timings: StageTimings
    ) -> Reply | Longer:
        """Do as `Dialect.answer`: a kernel reads the tensors if it can, and packs the outputs."""
        timings.begin()
        packed = _read_packed(body, limits) if served.fast.reads_tensors else None
        query = self.read(body, limits) if packed is None else None
        timings.end(READ)
        if packed is not None:
            plan = packed.plan
            epoch = served.thresholds.epoch
            outputs = served.fast.answer_tensors(
                packed.data,
                packed.start,
                packed.form,
                plan.number,
                served.ids.sign(epoch, SHORT_BEAMS),
            )
            if outputs is not None:
                if timings.is_traced:
                    timings.add_kernel_times(served.fast.times)
                return _reply(plan, *outputs, epoch, served)
        if query is None:
            query = self.read(body, limits)
            timings.begin()
        return self.answer_read(query, served, limits, timings)

    def read(self, body: Body, limits: Limits) -> Query:
        n_json, plan = _read_plan(body, limits)
        return InferQuery(plan, read_rows(plan, memoryview(body.message)[body.start + n_json :]))

    def first_labels(
        self, reply: bytes, n_json: int | None, n_max: int, served: ServedVersion
    ) -> list[list[str]]:
        """Return the names of the first labels, from the output `labels`, or else from `label_ids`.

        Returns an empty list for an answer with neither output.
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
            data = output.get("data") or (
                binary_texts(binary, n_rows * n_places, name)
                if name == "labels"
                else np.frombuffer(binary, "<i4").tolist()
            )
            outputs[name] = [
                data[row * n_places : (row + 1) * n_places][:n_max] for row in range(n_rows)
            ]
        if "labels" in outputs:
            return [[label for label in row if label] for row in outputs["labels"]]
        return [
            [name_of(served.labels, i) for i in row if i >= 0]
            for row in outputs.get("label_ids", ())
        ]


TENSORS = TensorDialect()


def _read_packed(body: Body, limits: Limits) -> PackedTensors | None:
    """Return the request of a body; None if no kernel reads its tensors."""
    if body.header_or_query is None:
        return read_packed(body.content, limits)
    n_json, plan = _read_plan(body, limits)
    return (
        None
        if plan.form is None
        else PackedTensors(plan, plan.form, body.message, body.start + n_json)
    )


def _read_plan(body: Body, limits: Limits) -> tuple[int, InferPlan]:
    """Return how many bytes of a body are JSON, and the plan that the JSON describes."""
    n_bytes = len(body.message) - body.start
    n_json = n_bytes if body.header_or_query is None else json_length(body.header_or_query, n_bytes)
    return n_json, read_plan(
        body.message[body.start : body.start + n_json], n_bytes - n_json, limits
    )


def _reply(
    plan: InferPlan, data: bytes, ends: Sequence[int], epoch: int, served: ServedVersion
) -> Reply:
    """Return the answer with these outputs: all as binary data, and where each ends."""
    json, binary = write_outputs(plan.outputs, data, ends)
    head = _head(served.name, served.version, epoch)
    tail = b"]}" if plan.identity is None else b'],"id":%b}' % dump(plan.identity)
    is_tuned = plan.options.threshold == TUNED
    n_json = len(head) + len(json) + len(tail) if binary else None
    return Reply((head, json, tail, binary), plan.n_rows, is_tuned, n_json)


_HEADS_MAX = 1024  # cached starts of answers: one for each version and epoch of thresholds


@functools.lru_cache(_HEADS_MAX)
def _head(model: str, version: int, epoch: int) -> bytes:
    return b'{"model_name":"%b","model_version":"%d","parameters":{"version":%d%b},"outputs":[' % (
        model.encode(),
        version,
        version,
        b',"threshold_epoch":%d' % epoch if epoch else b"",
    )
