"""What a training works with: a seed, who runs its steps, and who is told how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from service.executors.local import Crew
from service.executors.steps import R, Step, T
from service.trainers.source import OnRows, RowSource, TrainingSet
from service.trainers.state import EVERY_PASS, Passes

Progress = Callable[[str, int, int], None]
"""Called in the caller's thread with (stage, units done, units in all)."""


def no_progress(stage: str, done: int, total: int) -> None:
    """Report nothing."""


def parts_told(source: RowSource, progress: Progress, stage: str) -> Iterator[TrainingSet]:
    """Yield the parts of a source and tell how far it is."""
    n_rows, total = 0, source.census.n_rows
    progress(stage, 0, total)
    for part in source.parts():
        yield part
        n_rows += part.n_rows
        progress(stage, n_rows, total)


def derived_seed(*words: int) -> int:
    """Return a seed of 63 bits that depends on all the words: the user's seed, then what it is for."""
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0] >> np.uint64(1))


@dataclass(frozen=True)
class Tools:
    """What a training, or a part of it, works with.

    seed      the same data, parameters and seed give the same bits, whatever the number of threads
    crew      who runs its steps
    progress  is told how far it is
    on_rows   is shown rows of the first pass before they are learnt, by a trainer that shows them
    passes    which of them are made, by a trainer that keeps a state
    """

    seed: int = 0
    crew: Crew = field(default_factory=lambda: Crew(1))
    progress: Progress = no_progress
    on_rows: OnRows | None = None
    passes: Passes = EVERY_PASS

    def seeded(self, *words: int) -> Tools:
        """Return the same with a seed of its own for a part of the work."""
        return replace(self, seed=derived_seed(self.seed, *words))

    def collected(self, stage: str, step: Step[T, R], items: Sequence[T]) -> list[R]:
        """Return the results of a step in the order of the items, and tell how many there are so far."""
        found: dict[T, R] = {}

        def done(item: T, result: R) -> None:
            found[item] = result
            self.progress(stage, len(found), len(items))

        self.crew.steps(step, items, done)
        return [found[item] for item in items]

    def of_tree(self, tree: int, n_trees: int) -> Tools:
        """Return what a tree of several is trained with: its number follows the name of each stage."""
        part, progress = self.seeded(tree), self.progress
        if n_trees == 1:
            return part
        told = f"tree {tree + 1} of {n_trees}"
        return replace(part, progress=lambda stage, done, total: progress(f"{stage}, {told}", done, total))
