"""A slow disk and a clock that jumps, for server processes: a small library of C that is loaded into them."""

import mmap
import os
import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("disturb.c")
_FORMAT = "dd"


def why_not() -> str | None:
    """Why servers cannot be disturbed here, if so."""
    return None if shutil.which("cc") else "there is no C compiler"


class Disturbance:
    """What the disk and the clock of the servers do that are started with `environment`."""

    def __init__(self, directory: Path) -> None:
        library = directory / "disturb.so"
        command = ["cc", "-O2", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl", "-lm"]
        subprocess.run(command, check=True)
        control = directory / "disturb"
        control.write_bytes(bytes(struct.calcsize(_FORMAT)))
        descriptor = os.open(control, os.O_RDWR)
        self._control = mmap.mmap(descriptor, struct.calcsize(_FORMAT))
        os.close(descriptor)
        self.environment = {"LD_PRELOAD": str(library), "DISTURB": str(control)}

    def set(self, disk_seconds: float = 0.0, clock_seconds: float = 0.0) -> None:
        """Have each write to a disk wait, and the clock of the day be off; without arguments, neither."""
        self._control[:] = struct.pack(_FORMAT, disk_seconds, clock_seconds)
