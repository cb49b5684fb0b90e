"""Clients of other servers over gRPC: tritonclient, KServe's, and who knows only reflection."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from tests.helpers.checkout import ROOT
from tests.helpers.grpc_calls import SECONDS, channel_to, port_of
from tests.helpers.oip_requests import TYPES
from tests.helpers.served_models import TEXTS
from tests.helpers.servers import ServerProcess

from xylem.extras.grpc.messages import SERVICE, message_class

CLIENT = ROOT / ".venv-clients" / "bin" / "python"


@pytest.fixture(scope="module")
def server(shared_store: Path) -> Iterator[ServerProcess]:
    with ServerProcess(shared_store, grpc_port=0) as process:
        yield process


def run(script: str, *arguments: object) -> Any:
    """Run a script where the clients are installed; return the JSON that it prints."""
    if not CLIENT.exists():
        pytest.skip("the clients are not installed (make test-system does)")
    command = [CLIENT, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


_FIELDS = """
import json, sys
from tritonclient.grpc import service_pb2
found = {}
def walk(message):
    fields = {f.name: [f.number, f.type, f.is_repeated] for f in message.fields}
    found[message.full_name] = fields
    for nested in message.nested_types:
        walk(nested)
for message in service_pb2.DESCRIPTOR.message_types_by_name.values():
    walk(message)
print(json.dumps(found))
"""


def fields_of(message: Any) -> dict[str, list[int]]:
    """The number and the kind of each field of a message."""
    return {field.name: [field.number, field.type, field.is_repeated] for field in message.fields}


def nested(message: Any) -> list[Any]:
    """A message, and those that are defined in it."""
    return [message, *(each for inner in message.nested_types for each in nested(inner))]


def messages() -> dict[str, dict[str, list[int]]]:
    """The fields of every message of the protocol."""
    file = message_class("ModelInferRequest").DESCRIPTOR.file
    outer = file.message_types_by_name.values()
    return {each.full_name: fields_of(each) for one in outer for each in nested(one)}


def test_fields_have_the_numbers_that_other_clients_use() -> None:
    theirs = run(_FIELDS)
    ours = messages()
    assert len(ours) > 20
    wrong = {
        f"{name}.{field}": (kind, theirs[name].get(field))
        for name, fields in ours.items()
        for field, kind in fields.items()
        if theirs[name].get(field) != kind
    }
    assert wrong == {}


_TRITON = """
import json, sys
import numpy as np
import tritonclient.grpc as triton
port, texts = sys.argv[1], sys.argv[2:]
client = triton.InferenceServerClient(f"127.0.0.1:{port}")
assert client.is_server_live() and client.is_server_ready()
assert client.is_model_ready("text") and client.is_model_ready("raw", "1")
assert client.get_server_metadata().name == "xylem"
types = {one.name: one.datatype for one in client.get_model_metadata("text").inputs}
rows = {"indptr": np.array([0, 2, 3]), "indices": np.array([1, 5, 7], np.int32)}
rows["values"] = np.array([1, 0.5, 3], np.float32)
answers, refused = [], []
for model, arrays in (("text", {"text": np.array(texts, object)}), ("raw", rows)):
    inputs = [triton.InferInput(name, array.shape, types[name]) for name, array in arrays.items()]
    for tensor, array in zip(inputs, arrays.values()):
        tensor.set_data_from_numpy(array)
    some = [triton.InferRequestedOutput(name) for name in ("label_ids", "scores")]
    for outputs in (None, some):
        answer = client.infer(
            model, inputs, outputs=outputs, request_id="7", parameters={"top_r": 4},
            compression_algorithm=None if outputs else "gzip",
        )
        assert answer.get_response().id == "7"
        assert answer.as_numpy("scores").dtype == np.float32
        assert outputs is some or answer.as_numpy("labels").shape == (2, 4)
        answers.append([answer.as_numpy("label_ids").tolist(), answer.as_numpy("scores").tolist()])
for model, parameters in (("raw", {"top_r": 0}), ("none", None)):
    try:
        client.infer(model, inputs, parameters=parameters)
    except triton.InferenceServerException as error:
        refused.append([error.status(), error.message()])
print(json.dumps({"types": types, "answers": answers, "refused": refused}))
"""

_KSERVE = """
import asyncio, json, sys
import numpy as np
from kserve import InferenceGRPCClient, InferInput, InferRequest
async def main():
    client = InferenceGRPCClient(url=f"127.0.0.1:{sys.argv[1]}")
    assert await client.is_server_live() and await client.is_server_ready()
    assert await client.is_model_ready("text")
    answers = []
    for is_raw in (True, False):
        text = InferInput(name="text", shape=[2], datatype="BYTES")
        text.set_data_from_numpy(np.array(sys.argv[2:], object), binary_data=is_raw)
        request = InferRequest(
            model_name="text", infer_inputs=[text], request_id="7", parameters={"top_r": 4}
        )
        answer = await client.infer(request)
        outputs = {one.name: one.as_numpy() for one in answer.outputs}
        assert answer.id == "7" and outputs["labels"].shape == (2, 4)
        answers.append([outputs["label_ids"].tolist(), outputs["scores"].tolist()])
    await client.close()
    print(json.dumps(answers))
asyncio.run(main())
"""


def check(server: ServerProcess, model: str, instances: list[Any], answers: list[Any]) -> None:
    """Check ids and scores: those of predict over HTTP."""
    body = {"instances": instances, "top_r": 4}
    status, predicted = server.ask("POST", f"/v1/models/{model}/predict", body)
    assert status == 200
    rows = [row["labels"] for row in predicted["predictions"]]
    assert answers
    for ids, scores in answers:
        assert ids == [[label["id"] for label in row] for row in rows]
        expected = [[label["score"] for label in row] for row in rows]
        assert np.array_equal(np.float32(scores), np.float32(expected))


def test_tritons_client_predicts_and_is_refused(server: ServerProcess) -> None:
    answer = run(_TRITON, port_of(server), *TEXTS[:2])
    assert answer["types"] == TYPES
    check(server, "text", [{"text": text} for text in TEXTS[:2]], answer["answers"][:2])
    rows = [{"indices": [1, 5], "values": [1, 0.5]}, {"indices": [7], "values": [3]}]
    check(server, "raw", rows, answer["answers"][2:])
    assert answer["refused"] == [
        ["StatusCode.INVALID_ARGUMENT", "parameters.top_r: expected at least 1, found 0"],
        ["StatusCode.NOT_FOUND", "model: expected one of the store, found 'none'"],
    ]


def test_kserves_client_predicts(server: ServerProcess) -> None:
    answers = run(_KSERVE, port_of(server), *TEXTS[:2])
    check(server, "text", [{"text": text} for text in TEXTS[:2]], answers)


def test_a_client_that_knows_only_reflection_predicts(server: ServerProcess) -> None:
    with channel_to(server) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert set(database.get_services()) == {
            SERVICE,
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
        }
        pool = descriptor_pool.DescriptorPool(database)
        infer = pool.FindServiceByName(SERVICE).FindMethodByName("ModelInfer")
        assert pool.FindServiceByName("grpc.health.v1.Health").methods_by_name["Check"]
        request_class = message_factory.GetMessageClass(infer.input_type)
        response_class = message_factory.GetMessageClass(infer.output_type)
        request = request_class(model_name="text", parameters={"top_r": {"int64_param": 4}})
        text = request.inputs.add(name="text", datatype="BYTES", shape=[2])
        text.contents.bytes_contents.extend([one.encode() for one in TEXTS[:2]])
        call = channel.unary_unary(
            f"/{SERVICE}/ModelInfer",
            request_serializer=request_class.SerializeToString,
            response_deserializer=response_class.FromString,
        )
        outputs = {one.name: one.contents for one in call(request, timeout=SECONDS).outputs}
        ids = np.reshape(outputs["label_ids"].int_contents, (2, 4)).tolist()
        scores = np.reshape(outputs["scores"].fp32_contents, (2, 4)).tolist()
    check(server, "text", [{"text": text} for text in TEXTS[:2]], [[ids, scores]])
