"""Standard input as a data file that has no end but the one its writer, or Ctrl-C, makes."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from service.datasets.stream import BLOCK_BYTES, DataFile


class StandardInput(DataFile):
    """Lines of standard input, given out as they come.

    It ends with its last byte, or at the first interrupt (Ctrl-C) while it is being read: what has not been
    read then, or is not a whole line, is dropped. A second interrupt is a KeyboardInterrupt, as any other.
    """

    def __init__(self) -> None:
        super().__init__(Path("standard input"))
        self._was_interrupted = False

    def blocks(self) -> Iterator[bytes]:
        """Yield what there is to read, at most BLOCK_BYTES at a time."""
        descriptor = sys.stdin.fileno()
        with _first_interrupt() as interrupt:
            awaited = select.poll()  # `select` takes no descriptor above 1023
            for one in (descriptor, *interrupt):
                awaited.register(one, select.POLLIN)
            while True:
                if [ready for ready, _ in awaited.poll()] != [descriptor]:
                    self._was_interrupted = True
                    return
                block = os.read(descriptor, BLOCK_BYTES)
                if not block:
                    return
                self._digest.update(block)
                yield block

    def lines(self) -> Iterator[bytes]:
        """Yield blocks of whole lines, as DataFile does."""
        for block in super().lines():
            if self._was_interrupted:  # what is left is the beginning of a line
                return
            yield block


@contextmanager
def _first_interrupt() -> Iterator[list[int]]:
    """Give a descriptor that can be read after the first interrupt, which then does nothing else.

    None outside the main thread, which alone gets signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield []
        return
    reader, writer = os.pipe()

    def note(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        os.write(writer, b"!")

    before = signal.signal(signal.SIGINT, note)
    try:
        yield [reader]
    finally:
        signal.signal(signal.SIGINT, before)
        os.close(reader)
        os.close(writer)
