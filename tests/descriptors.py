"""Compile the descriptors of the gRPC messages: `python -m tests.descriptors`.

tests/unit/extras/grpc/test_messages.py compares the file with what this script makes.
"""

import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

FOLDER = Path(__file__).resolve().parents[1] / "service" / "xylem" / "extras" / "grpc"
SOURCE = "inference.proto"
COMPILED = "inference.binpb"


def compiled() -> bytes:
    """Return the serialised FileDescriptorSet of the source."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / COMPILED
        command = ["protoc", f"-I{FOLDER}", f"--descriptor_set_out={file}", SOURCE]
        if protoc.main(command):
            sys.exit(1)
        return file.read_bytes()


if __name__ == "__main__":
    (FOLDER / COMPILED).write_bytes(compiled())
