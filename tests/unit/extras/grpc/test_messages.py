"""The compiled descriptors are those of the source beside them."""

from tests.descriptors import COMPILED, FOLDER, compiled

from xylem.extras.grpc.messages import SERVICE, message_class


def test_the_descriptors_are_those_of_the_source() -> None:
    assert (FOLDER / COMPILED).read_bytes() == compiled(), "call python -m tests.descriptors"


def test_every_method_has_its_messages() -> None:
    service = message_class("ServerLiveRequest").DESCRIPTOR.file.services_by_name
    (methods,) = (each.methods for each in service.values() if each.full_name == SERVICE)
    assert len(methods) == 9
    for method in methods:
        assert method.input_type.name == f"{method.name}Request"
        assert method.output_type.name == f"{method.name}Response"
