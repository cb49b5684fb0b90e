"""Calls of gRPC to a server, with messages of the protocol's descriptors."""

from typing import Any, NamedTuple

import grpc

from tests.helpers.servers import ServerProcess
from xylem.extras.grpc.messages import SERVICE, message_class

SECONDS = 60.0
"""How long a call may take where a test sets no deadline."""


class Refusal(NamedTuple):
    """How a call was refused."""

    status: grpc.StatusCode
    code: str
    detail: str


def port_of(server: ServerProcess) -> int:
    """Return the port on which a server answers gRPC."""
    (event,) = server.events("listening_grpc")
    return int(event["port"])


def channel_to(server: ServerProcess, *options: tuple[str, int]) -> grpc.Channel:
    """Return a connection of its own to a server."""
    defaults = ("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)
    return grpc.insecure_channel(f"127.0.0.1:{port_of(server)}", (*defaults, *options))


def method(channel: grpc.Channel, name: str) -> Any:
    """Return a method of the protocol, as gRPC's generated stubs have it."""
    return channel.unary_unary(
        f"/{SERVICE}/{name}",
        request_serializer=message_class(f"{name}Request").SerializeToString,
        response_deserializer=message_class(f"{name}Response").FromString,
    )


def ask(channel: grpc.Channel, name: str, /, *, metadata: Any = (), **fields: Any) -> Any:
    """Call a method with a request of these fields; return its response."""
    request = message_class(f"{name}Request")(**fields)
    return method(channel, name)(request, timeout=SECONDS, metadata=metadata)


def refusal(channel: grpc.Channel, name: str, /, **arguments: Any) -> Refusal:
    """Call a method, which must be refused; return how."""
    try:
        response = ask(channel, name, **arguments)
    except grpc.RpcError as error:
        return refusal_of(error)
    raise AssertionError(response)


def refusal_of(error: Any) -> Refusal:
    """Return how a call was refused."""
    metadata = dict(error.trailing_metadata() or ())
    return Refusal(error.code(), metadata.get("xylem-code", ""), error.details())


def typed(name: str, data: list[Any], **changes: Any) -> dict[str, Any]:
    """Return an input with typed contents."""
    datatype, field = {
        "text": ("BYTES", "bytes_contents"),
        "indptr": ("INT64", "int64_contents"),
        "indices": ("INT32", "int_contents"),
        "values": ("FP32", "fp32_contents"),
    }[name]
    contents = {field: [one.encode() if isinstance(one, str) else one for one in data]}
    tensor = {"name": name, "datatype": datatype, "shape": [len(data)], "contents": contents}
    return {**tensor, **changes}
