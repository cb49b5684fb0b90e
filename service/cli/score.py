"""`xylem score`: lines of instances with labels in, lines of exact probabilities out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from service.base.errors import BadData
from service.cli.console import progress
from service.cli.options import DEFAULT_STORE, Json, Model, StoreDir, Threads, n_threads, parse_reference
from service.cli.predict import Instances
from service.serving.line_files import STDIN, blocks, idle, in_order, opened

if TYPE_CHECKING:
    from service.serving.lines import Answered, LineBlock


def score(
    model: Model,
    data: Instances = STDIN,
    threads: Threads = None,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Tell the exact probabilities of labels: one JSON object a line in, their scores a line out.

    A line is an instance as `xylem predict` takes it, and "labels": those to score. A line that cannot be
    used has an error in its place, and the exit status is 2 at the end.
    """
    from model_store.store import Store
    from service.base.settings import read_settings
    from service.serving.denied import denied_by, with_denied
    from service.serving.opening import serve_model
    from service.serving.scores import score_block

    limits = read_settings().limits
    opened_store, (name, reference) = Store(store), parse_reference(model)
    served = serve_model(opened_store.open(name, reference))
    if denied := denied_by(opened_store, name, reference):
        served = with_denied(served, denied)

    def answer(block: LineBlock) -> Answered:
        return score_block(block, served, limits)

    n_rows = n_bad = 0
    with opened(data) as source, progress(json or data == STDIN) as show:
        todo = blocks(source, limits.line_bytes_max, limits.block_rows_max)
        for answered in in_order(todo, answer, n_threads(threads), idle(source)):
            sys.stdout.buffer.write(answered.lines)
            sys.stdout.buffer.flush()
            n_rows += answered.n_rows
            n_bad += answered.n_bad
            show("score", source.raw.tell() if source.n_bytes else 0, source.n_bytes)
    if n_bad:
        lines = f"each of {n_rows + n_bad} lines, found {n_bad} without"
        raise BadData(f"{data}: expected an instance with labels on {lines}")
