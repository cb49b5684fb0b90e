"""When the phases of a job began and ended, as its process told them: parts of its span."""

from __future__ import annotations

from time import perf_counter_ns

from service.traces.tracer import Part

PHASES_MAX = 256
"""The most phases that are told of."""


class PhaseNotes:
    """The phases of a job so far. One thread at a time."""

    def __init__(self) -> None:
        self._ended: list[Part] = []
        self._phase = ""
        self._began = 0

    def note(self, phase: str) -> None:
        """Note which phase the job is in: another one than before has begun now."""
        if phase != self._phase:
            self._end()
            self._phase, self._began = phase, perf_counter_ns()

    def parts(self) -> list[Part]:
        """Return the phases, the last of which ends now."""
        self._end()
        return self._ended

    def _end(self) -> None:
        if self._phase and len(self._ended) < PHASES_MAX:
            self._ended.append((self._phase, self._began, perf_counter_ns()))
        self._phase = ""
