"""The messages of the protocol: protobuf makes their classes from compiled descriptors.

Generated Python would say the same in a second file, and would bind the release of protobuf that it
was generated with. `python -m tests.descriptors` compiles `inference.proto`.
"""

from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet

SERVICE = "inference.GRPCInferenceService"
_compiled = FileDescriptorSet.FromString(
    files(__package__).joinpath("inference.binpb").read_bytes()
)
_pool = descriptor_pool.Default()  # reflection shows the descriptors of this pool
for _file in _compiled.file:
    _pool.Add(_file)
_classes = message_factory.GetMessageClassesForFiles([file.name for file in _compiled.file], _pool)


def message_class(name: str) -> Any:
    """Return the class of a message of the protocol."""
    return _classes[f"inference.{name}"]
