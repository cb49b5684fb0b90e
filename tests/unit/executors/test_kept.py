"""Results of steps kept in files, and as bytes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.base.errors import BadData, Unavailable
from service.executors.kept import kept_steps
from service.executors.local import Crew
from service.executors.values import Calls, Step, digest_of, mapped, packed, shared, unpacked
from service.trainers import fit, parse_parameters
from service.trainers.registry import TRAINERS
from service.trainers.source import MemorySource, Tools, TrainingSet
from tests.contract.test_every_trainer import items_of, learnable
from tests.oracles.problems import to_labels, to_rows
from tests.steps import Found, Parts, Scaled, scaled, shifted

MATRIX = np.random.default_rng(0).random((20, 5)).astype(np.float32)
SPREADING = [name for name, spec in TRAINERS.items() if spec.alone(spec.parameters()) is None]


class Counting(Crew):
    """A crew that counts the items that it runs; it is interrupted after some of them."""

    def __init__(self, most: int = 1 << 30) -> None:
        super().__init__(1)
        self.most = most
        self.n_run = 0

    def steps(self, step: Any, items: Any, done: Any) -> None:
        def counted(item: Any, result: Any) -> None:
            self.n_run += 1
            if self.n_run > self.most:
                raise KeyboardInterrupt
            done(item, result)

        super().steps(step, items, counted)


def source() -> MemorySource:
    x, y = learnable()
    return MemorySource(TrainingSet(to_rows(x), to_labels(y)))


def arrays_of(trained: Any) -> dict[str, bytes]:
    found = {**trained.ensemble._asdict(), **trained.extra}
    return {name: np.asarray(array).tobytes() for name, array in found.items()}


def run(crew: Crew, step: Step[int, Found], rows: range) -> dict[int, Found]:
    found: dict[int, Found] = {}
    crew.steps(step, rows, found.__setitem__)
    return found


@pytest.mark.parametrize("name", SPREADING)
def test_a_training_that_is_interrupted_goes_on_from_its_steps_to_the_same_bits(
    name: str, tmp_path: Path
) -> None:
    parameters = parse_parameters(name, items_of(name, leaf_size=2, arity=2))
    whole, first, second = Counting(), Counting(2), Counting()
    expected = fit(name, parameters, source(), Tools(1, whole))
    first.most = whole.n_run // 2
    with pytest.raises(KeyboardInterrupt), kept_steps(first, tmp_path / "steps", True) as crew:
        fit(name, parameters, source(), Tools(1, crew))
    with kept_steps(second, tmp_path / "steps", True) as crew:
        found = fit(name, parameters, source(), Tools(1, crew))
    assert (arrays_of(found), found.report) == (arrays_of(expected), expected.report)
    assert second.n_run == whole.n_run - first.most
    assert not (tmp_path / "steps").exists()


def test_what_is_kept_is_taken_for_the_same_step_alone_and_only_where_it_is_asked_for(tmp_path: Path) -> None:
    crew = Counting()
    with pytest.raises(KeyboardInterrupt), kept_steps(crew, tmp_path / "s", True) as kept:
        run(kept, Scaled(MATRIX, 2.0), range(6))
        run(kept, Calls(scaled, (MATRIX, 2.0)), range(6))
        raise KeyboardInterrupt
    for resume, step, n_run in (
        (True, Calls(scaled, (MATRIX, 2.0)), 4),
        (True, Calls(scaled, (MATRIX, 3.0)), 10),
        (True, Calls(shifted, (MATRIX, 2.0)), 10),
        (True, Scaled(MATRIX, 2.0), 4),
        (True, Scaled(MATRIX, 3.0), 10),
        (True, Scaled(MATRIX + 1, 2.0), 10),
        (False, Scaled(MATRIX, 2.0), 10),
    ):
        crew.n_run = 0
        with pytest.raises(KeyboardInterrupt), kept_steps(crew, tmp_path / "s", resume) as kept:
            found, plain = run(kept, step, range(10)), run(Crew(1), step, range(10))
            assert [packed(found[row]) for row in range(10)] == [packed(plain[row]) for row in range(10)]
            raise KeyboardInterrupt
        assert crew.n_run == n_run


def test_what_a_killed_process_wrote_half_is_cut_off(tmp_path: Path) -> None:
    crew, step = Counting(), Scaled(MATRIX, 2.0)
    with pytest.raises(KeyboardInterrupt), kept_steps(crew, tmp_path, True) as kept:
        run(kept, step, range(6))
        raise KeyboardInterrupt
    (file,) = (file for file in tmp_path.iterdir() if file.name != "lock")
    content = file.read_bytes()
    whole = len(content) // 6
    for end in range(0, len(content), 37):
        file.write_bytes(content[:end])
        crew.n_run = 0
        with pytest.raises(KeyboardInterrupt), kept_steps(crew, tmp_path, True) as kept:
            found = run(kept, step, range(6))
            raise KeyboardInterrupt
        assert crew.n_run == 6 - end // whole
        assert packed(found[5]) == packed(run(Crew(1), step, range(5, 6))[5])


def test_two_trainings_do_not_keep_steps_in_one_place(tmp_path: Path) -> None:
    refused = pytest.raises(Unavailable, match="expected no other training that keeps its steps there")
    with kept_steps(Crew(1), tmp_path / "m", False), refused, kept_steps(Crew(1), tmp_path / "m", True):
        pass


def test_values_come_back_from_bytes_as_they_were() -> None:
    value = Found(3, 0.1, [MATRIX, None, MATRIX[:0]])
    back = unpacked(Found, packed(value))
    assert (back.number, back.share, back.arrays[1]) == (3, 0.1, None)
    assert np.array_equal(back.arrays[0], MATRIX) and back.arrays[2].shape == (0, 5)
    assert digest_of(value) != digest_of(value._replace(share=0.2))
    assert digest_of(MATRIX) != digest_of(MATRIX.reshape(5, 20))
    with pytest.raises(TypeError, match="found object"):
        packed([object()])
    with pytest.raises(ValueError, match="expected an array of 400 bytes, found 300"):
        unpacked(Found, packed(value)[:-100])


def test_arrays_of_others_are_seen_through_views_that_are_not_read_only() -> None:
    step = Scaled(MATRIX.copy(), 1.0)
    step.matrix.flags.writeable = False
    seen = mapped(step, shared)
    assert seen.matrix.flags.writeable and np.shares_memory(seen.matrix, step.matrix)
    assert seen.factor == step.factor


def test_a_training_on_blocks_goes_on_from_its_steps_to_the_same_bits(tmp_path: Path) -> None:
    rows, parameters = (
        Parts(source().data, 6),
        parse_parameters("label-tree", ["leaf_size=2", "memory_mib=2"]),
    )
    whole, first, second = Counting(), Counting(), Counting()
    expected = arrays_of(fit("label-tree", parameters, rows, Tools(1, whole)))
    first.most = whole.n_run - 1
    with pytest.raises(KeyboardInterrupt), kept_steps(first, tmp_path / "steps", True) as crew:
        fit("label-tree", parameters, rows, Tools(1, crew))
    with kept_steps(second, tmp_path / "steps", True) as crew:
        assert arrays_of(fit("label-tree", parameters, rows, Tools(1, crew))) == expected
    n_blocks = sum(1 for _ in rows.parts())
    assert second.n_run == 2 * n_blocks + 1  # sums of labels and rows of subtrees are made anew


def test_a_training_that_fails_before_its_first_step_leaves_no_directory(tmp_path: Path) -> None:
    with pytest.raises(BadData), kept_steps(Crew(1), tmp_path / "steps", False):
        raise BadData("row 1: expected another, found this one")
    assert not list(tmp_path.iterdir())
