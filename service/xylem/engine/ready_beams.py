"""Beam searches on buffers that are made once for many requests, for kernels that read the rows."""

from collections.abc import Callable

import numpy as np

from xylem.base import RowArrays
from xylem.engine.answering import NO_COSTS
from xylem.engine.buffers import BufferPool, Need
from xylem.engine.kernels.search.beam import beam_rows
from xylem.engine.kernels.search.call import FIRST, set_rows
from xylem.engine.kernels.search.ready_beam import SEARCHES, ReadyBeam
from xylem_store import F32, I64, Uncopyable, address_of, handle_of

_FIRST_NEED = Need(1, 256, 10, 10)


class ReadyBeams(Uncopyable):
    """The beam searches of one predictor, one request after the other, for one thread.

    beam       the search on the buffers of now; another one after each `grow`
    handle     its handle
    requested  int64[5]: what the last request needed, as in a ReadyBeam
    """

    beam: ReadyBeam
    handle: I64

    def __init__(
        self, pool: BufferPool, beam_with: Callable[..., ReadyBeam], rows: RowArrays, number: F32
    ) -> None:
        """Prepare to search rows; no buffers are made before `prepare`.

        beam_with  makes a ReadyBeam of its handles and arrays
        rows       the arrays into which rows are read, whose size bounds them
        number     float32[2]: receives a threshold for all labels, and its logarithm
        """
        self._pool = pool
        self._beam_with = beam_with
        self._rows = rows
        self._number = number
        self.requested = np.zeros(5, np.int64)

    def prepare(self) -> None:
        """Make the first buffers."""
        self._make(_FIRST_NEED, _FIRST_NEED.top_r)

    def grow(self) -> bool:
        """Make larger buffers for the last request; return whether they had been too small."""
        n_rows, n_values, top_r, beam_width, _ = self.requested.tolist()
        room = self._buffers.room
        need = Need(
            1,
            max(room.n_features, n_values),
            max(room.beam_width, beam_width),
            max(room.top_r, top_r),
        )
        n_places = max(n_rows * top_r, len(self.beam.labels))
        if need == room and n_places == len(self.beam.labels):
            return False
        self._make(need, n_places)
        return True

    @property
    def top_r_max(self) -> int:
        """The most labels of a row that the buffers have room for."""
        return self._buffers.room.top_r

    def _make(self, need: Need, n_places: int) -> None:
        """Make the buffers of the search, and n_places places for labels."""
        n_rows = len(self._rows[0]) - 1
        self._buffers = buffers = self._pool.take(need)
        set_rows(buffers.rows, *self._rows)
        buffers.call[FIRST] = 0
        self.beam = self._beam_with(
            searching=address_of(beam_rows, SEARCHES, buffers.call),
            call=buffers.call,
            search=buffers.search,
            answers=buffers.answers,
            requested=self.requested,
            room=np.array(buffers.room[1:], np.int64),
            number=self._number,
            no_costs=NO_COSTS,
            counts=np.empty(n_rows, np.int64),
            exact=np.empty(n_rows, np.uint8),
            labels=np.empty(n_places, np.int32),
            scores=np.empty(n_places, np.float32),
        )
        self.handle = handle_of(self.beam)
