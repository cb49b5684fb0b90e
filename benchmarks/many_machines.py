"""Trainings on many machines: measured beside threads, and played through
for clusters that nobody has here.

    python -m benchmarks.many_machines --data DIR                       # play a training's steps
                                                                        through
    python -m benchmarks.many_machines --data DIR --measure --repeats 3 # threads and nodes, in
    turns

Played through: the training runs once, in this process, one step after the other. The processor
time and the bytes of every step are kept, and handed out to 10, 100 and 1,000 nodes as
`xylem.extras.ray.crew` does it: fields go to each node once, from node to node (the holders
double in each round), items in bundles to the first processor that is free, the driver begins,
takes and joins one after the other. Then the same for `--rows` and `--labels`: steps as a tree of
so many labels has them, each with the seconds and bytes for a row's visit or a label that were
measured; with all rows on each node, and in blocks (`--stream`): the driver reads the rows twice, a
tile of a node whose rows exceed `--memory-mib` gets them in each pass, and the first node below
gets its rows once. Not modelled: nodes that die, or share the network.
"""

import argparse
import heapq
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import scipy.sparse as sp

from benchmarks.batch_files import crew_of_nodes
from benchmarks.data import prepare
from benchmarks.ours import labels_of, rows_of
from benchmarks.runs import spread
from xylem.base.executors.local import Crew
from xylem.base.executors.steps import Calls, n_bytes
from xylem.datasets.data_stream import DataStream
from xylem.extras.ray.crew import BUNDLE_MAX, BUNDLE_SECONDS
from xylem.trainers import fit, parse_parameters
from xylem.trainers.blocks import PASSES_MAX
from xylem.trainers.classifiers import Solve
from xylem.trainers.clustering import SUBTREE, _halve
from xylem.trainers.representations import _represent
from xylem.trainers.source import MemorySource, Tools, TrainingSet

NODES = (1, 2, 10, 100, 1000)
TILE = 16


class Item(NamedTuple):
    """What a step took: seconds on a node, bytes there and back,
    seconds of the driver, bytes of blocks.
    """

    seconds: float
    n_bytes: int
    joined: float = 0.0
    blocks: float = 0.0


class Phase(NamedTuple):
    """A step and its items; all of them end before the next phase begins."""

    name: str
    n_bytes: int
    items: list[Item]


class Recording(Crew):
    """Runs one item after the other, and keeps what each takes."""

    def __init__(self) -> None:
        super().__init__(1)
        self.phases: list[Phase] = []
        self.visits = self.visit_seconds = 0.0

    def steps(self, step: Any, items: Iterable[Any], done: Callable[[Any, Any], None]) -> None:
        workspace, found = step.workspace(), []
        for item in items:
            sent, began = n_bytes(item) if isinstance(item, tuple) else 8, time.process_time()
            result = step.run(item, workspace, self.stop)
            ended = time.process_time()
            done(item, result)
            found.append(Item(ended - began, sent + n_bytes(result), time.process_time() - ended))
            if isinstance(step, Solve):
                self.visits += step.visits(item)
                self.visit_seconds += ended - began
        name = step.function.__name__ if isinstance(step, Calls) else type(step).__name__
        self.phases.append(Phase(name.strip("_"), n_bytes(step), found))


class Machines(NamedTuple):
    """A cluster: processors a node, bytes a second of a node's
    network, seconds of the driver for a task.
    """

    processors: int
    network: float
    task: float


class Played(NamedTuple):
    """A training played through: seconds in all and where they went, bytes over the network."""

    seconds: float
    n_bytes: float
    fields: float
    blocks: float
    longest: float
    driver: float

    def bottleneck(self) -> str:
        """Return what a larger cluster would not make shorter, or that it would."""
        own = {"longest steps": self.longest, "the driver": self.driver}
        parts = {"fields to the nodes": self.fields, "blocks to the nodes": self.blocks, **own}
        if sum(parts.values()) < 0.5 * self.seconds:
            return "processors"
        return max(parts, key=lambda part: parts[part])


def bundles(items: list[Item]) -> Iterator[Item]:
    """Yield tasks: items joined until they take BUNDLE_SECONDS."""
    rest = iter(items)
    for first in rest:
        size = max(1, min(BUNDLE_MAX, int(BUNDLE_SECONDS / max(first.seconds, 1e-6))))
        bundle = [first, *itertools.islice(rest, size - 1)]
        yield Item(*(sum(column) for column in zip(*bundle, strict=True)))


def play(phases: list[Phase], serial: float, nodes: int, machines: Machines) -> Played:
    """Play phases through; `serial` are seconds of the driver besides."""
    now, sent, fields, blocks, longest, driver = serial, 0.0, 0.0, 0.0, 0.0, serial
    for phase in phases:
        spread_out = phase.n_bytes / machines.network * math.ceil(math.log2(nodes + 1))
        fields += spread_out
        sent += phase.n_bytes * nodes
        free = [(now + spread_out, node) for node in range(nodes)] * machines.processors
        heapq.heapify(free)
        network = [0.0] * nodes  # when it is free
        asked = joined = now + spread_out
        ends: list[tuple[float, Item]] = []
        for task in bundles(phase.items):
            asked += machines.task
            got = task.blocks * (1 - 1 / nodes)  # the others are on this node
            sent += got
            blocks += got / machines.network / nodes
            at, node = heapq.heappop(free)
            begin = max(at, asked)
            if got:
                begin = network[node] = max(network[node], begin) + got / machines.network
            end = begin + task.seconds
            heapq.heappush(free, (end, node))
            ends.append((end, task))
        for end, task in sorted(ends):
            joined = max(joined, end) + task.n_bytes / machines.network + task.joined
            sent += task.n_bytes
        busy = sum(
            machines.task + task.n_bytes / machines.network + task.joined for _, task in ends
        )
        driver += busy
        longest += max(task.seconds for _, task in ends)
        now = joined
    return Played(now, sent, fields, blocks, longest, driver)


def scaled(
    found: Recording,
    data: TrainingSet,
    n_rows: int,
    n_labels: int,
    leaf_size: int,
    memory: float = math.inf,
) -> list[Phase]:
    """Return the phases of a label tree of so many rows and labels, at the measured rates.

    memory  bytes of rows that a step may hold where rows are in blocks; else they are fields of
            steps
    """
    in_blocks = memory < math.inf
    row_bytes = n_bytes(data) / data.rows.n_rows
    carried = len(data.labels.indices) / data.labels.n_rows
    halving = [phase for phase in found.phases if phase.name == _halve.__name__.strip("_")]
    label_seconds = sum(item.seconds for phase in halving for item in phase.items)
    label_seconds /= data.labels.n_labels * max(
        1, math.ceil(math.log2(data.labels.n_labels / leaf_size))
    )
    vector_bytes = max((phase.n_bytes for phase in halving), default=0) / data.labels.n_labels
    halvings = max(0, math.ceil(math.log2(n_labels / leaf_size)))
    alone = min(halvings, max(0, math.ceil(math.log2(n_labels / SUBTREE))))
    phases = []
    for phase in found.phases:
        if phase.name == _represent.__name__.strip("_"):
            n_items = round(len(phase.items) * n_rows / data.rows.n_rows)
            seconds = statistics.mean(item.seconds for item in phase.items)
            vectors = vector_bytes * n_labels / n_items
            blocks = row_bytes * n_rows / n_items + vectors if in_blocks else 0.0
            one_range = Item(seconds, int(vectors), 0.0, blocks)
            fields = 0 if in_blocks else int(row_bytes * n_rows)
            phases.append(Phase(phase.name, fields, [one_range] * n_items))
    for level in range(alone + (alone < halvings)):
        labels, times = n_labels / 2**level, 1 if level < alone else halvings - alone
        items = [Item(labels * times * label_seconds, int(8 * labels))] * 2**level
        phases.append(Phase("Halve", int(vector_bytes * n_labels), items))
    solved = next(phase for phase in found.phases if phase.name == Solve.__name__)
    rate = found.visit_seconds / found.visits
    weight_bytes = sum(item.n_bytes for item in solved.items) / data.labels.n_labels
    joined = sum(item.joined for item in solved.items) / data.labels.n_labels
    levels = max(1, math.ceil(halvings / math.log2(TILE)))
    pieces: list[Item] = []
    is_above_top = in_blocks
    for level in range(levels + 1):
        n_nodes = min(TILE**level, 2**halvings)
        tiles = 1 if level < levels else max(1, math.ceil(n_labels / n_nodes / TILE))
        visits = n_rows * (1.0 if level == 0 else carried) / n_nodes
        share = n_labels * (1 / (levels + 1)) / n_nodes
        is_top = visits * row_bytes > memory
        blocks = row_bytes * visits * (PASSES_MAX if is_top else is_above_top)
        is_above_top = is_top
        one = Item(visits * rate, int(weight_bytes * share / tiles), joined * share / tiles, blocks)
        pieces += [one] * n_nodes * tiles
    return [*phases, Phase("Solve", 0 if in_blocks else int(row_bytes * n_rows), pieces)]


def read_seconds(file: Path) -> float:
    """Return the processor time to read a file in parts."""
    began = time.process_time()
    for _ in DataStream(file).parts():
        pass
    return time.process_time() - began


def table(title: str, phases: list[Phase], serial: float, machines: Machines, price: float) -> None:
    print(
        f"\n{title}\n\n| nodes | time | bytes over the network | node hours | cost | what "
        "bounds it |"
    )
    print("|---|---|---|---|---|---|")
    for nodes in NODES:
        played = play(phases, serial, nodes, machines)
        hours = played.seconds / 3600
        shown = f"{hours:,.2f} h" if hours >= 1 else f"{played.seconds:,.1f} s"
        cost = f"{nodes * hours:,.2f} | {nodes * hours * price:,.2f} | {played.bottleneck()}"
        print(f"| {nodes:,} | {shown} | {played.n_bytes / 1e9:,.1f} GB | {cost} |")


def simulate(given: argparse.Namespace, data: TrainingSet) -> None:
    recording = Recording()
    parameters = parse_parameters(given.trainer, given.p)
    began = time.process_time()
    fit(given.trainer, parameters, MemorySource(data), Tools(0, recording))
    seconds = time.process_time() - began
    stepped = sum(item.seconds + item.joined for phase in recording.phases for item in phase.items)
    serial = max(0.0, seconds - stepped)
    print(
        f"{data.rows.n_rows:,} rows, {data.labels.n_labels:,} labels: {seconds:.1f} s on one "
        "processor,"
    )
    print(f"of them {serial:.1f} s outside of steps")
    print("\n| step | items | seconds | longest | fields | results |")
    print("|---|---|---|---|---|---|")
    for name, group in itertools.groupby(recording.phases, key=lambda phase: phase.name):
        same = list(group)
        items = [item for phase in same for item in phase.items]
        times = (
            f"{sum(item.seconds for item in items):.2f} | {max(item.seconds for item in items):.3f}"
        )
        results = f"{sum(item.n_bytes for item in items) / 1e6:,.1f} MB"
        print(
            f"| {name} | {len(items):,} | {times} | {same[0].n_bytes / 1e6:,.1f} MB | {results} |"
        )
    machines = Machines(given.processors, given.network * 1e9 / 8, given.task_ms / 1e3)
    table("This data set", recording.phases, serial, machines, given.price)
    if given.trainer == "label-tree":
        leaf_size = dict(parameters)["leaf_size"]
        phases = scaled(recording, data, given.rows, given.labels, leaf_size)
        factor = given.rows / data.rows.n_rows
        title = f"{given.rows:,} rows, {given.labels:,} labels"
        table(title, phases, serial * factor, machines, given.price)
        root = factor * (8 * len(data.rows.indices) + 88 * data.rows.n_rows) / 1e9
        fields = max(phase.n_bytes for phase in phases) / 1e9
        print(f"\nA node holds {fields:,.0f} GB of fields; a worker {root:,.0f} GB at the root.")
        how = given.rows, given.labels, leaf_size, given.memory_mib << 20
        read = 2 * read_seconds(given.text)
        phases = scaled(recording, data, *how)
        table(f"{title}, in blocks", phases, (serial + read) * factor, machines, given.price)
        fields = max(phase.n_bytes for phase in phases) / 1e9
        print(
            f"\nRows read twice: {read:.1f} s of this data set. A node holds {fields:,.0f} "
            "GB of vectors."
        )


def measure(given: argparse.Namespace, data: TrainingSet) -> None:
    """Train by threads here and by nodes, one and two of each, in turns; all have their kernels."""
    parameters, source = parse_parameters(given.trainer, given.p), MemorySource(data)
    seconds: dict[str, list[float]] = {}

    def train(name: str, crew: Crew) -> None:
        began = time.perf_counter()
        fit(given.trainer, parameters, source, Tools(0, crew))
        seconds.setdefault(name, []).append(time.perf_counter() - began)

    few = MemorySource(data.cut(0, min(2000, data.rows.n_rows)))
    fit(given.trainer, parameters, few, Tools(0))
    for _ in range(given.repeats):
        train("one thread", Crew(1))
        train("two threads", Crew(2))
        for n, name in ((1, "one node"), (2, "two nodes")):
            with crew_of_nodes(n) as crew:
                fit(given.trainer, parameters, few, Tools(0, crew))
                train(name, crew)
    for name, values in seconds.items():
        print(f"{name}: {spread(values, 1)} s")
    usual = {name: statistics.median(values) for name, values in seconds.items()}
    print(f"one node over one thread, in time: {usual['one node'] / usual['one thread']:.2f}")
    print(f"two threads over one, in speed: {usual['one thread'] / usual['two threads']:.2f}")
    print(f"two nodes over one, in speed: {usual['one node'] / usual['two nodes']:.2f}")


def main() -> None:
    about = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=about)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out")
    parser.add_argument("--trainer", default="label-tree")
    parser.add_argument("-p", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=int, default=10**9)
    parser.add_argument("--labels", type=int, default=10**7)
    parser.add_argument("--processors", type=int, default=16, help="of a node")
    parser.add_argument("--network", type=float, default=10.0, help="gigabits a second of a node")
    parser.add_argument("--task-ms", type=float, default=1.5, help="of the driver for a task")
    parser.add_argument(
        "--memory-mib", type=int, default=4096, help="of a step, for rows in blocks"
    )
    parser.add_argument("--price", type=float, default=0.8, help="of a node for an hour")
    given = parser.parse_args()
    work = prepare(given.data, given.out).work
    rows, labels = (sp.load_npz(work / f"train.{part}.npz").tocsr() for part in ("rows", "labels"))
    data, given.text = TrainingSet(rows_of(rows), labels_of(labels)), work / "train.txt"
    (measure if given.measure else simulate)(given, data)


if __name__ == "__main__":
    main()
