"""Answer a block of lines of a batch. Runs in a thread."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import TypeAlias

import numpy as np

from xylem.base import QUEUE, READ, SEARCH, WRITE, BadInput, Limits, StageTimings
from xylem.engine import Featurizer, PredictOptions
from xylem.serving.batches.lines import Answered, LineBlock, dump, value_of
from xylem.serving.dialects.predict.schema import AnyLine, Options
from xylem.serving.dialects.predict.writing import describe_labels, write_predictions
from xylem.serving.kernels.text_lines import read_sparse_lines, text_rows_of_lines
from xylem.serving.label_info import LabelInfoOptions, label_info_options
from xylem.serving.live.served import ServedVersion
from xylem.serving.parse import parse_line
from xylem.serving.problems import describe_error
from xylem.serving.rows import (
    ChunkedRows,
    divide_texts,
    rows_and_faults,
    search_chunked,
    to_options,
    with_present_thresholds,
)


def answer_block(
    block: LineBlock,
    served: ServedVersion,
    options: PredictOptions,
    limits: Limits,
    timings: StageTimings | None = None,
    *,
    explain: bool = False,
    info: LabelInfoOptions | None = None,
    chunk_characters: int | None = None,
) -> Answered:
    """Return an answer line for each line of a block: a prediction, or the error of the line.

    explain           whether each label is explained
    info              which label info is answered for each label; None: no label info
    chunk_characters  the length of the chunks that longer texts are divided into; None: undivided
    """
    timings = timings or StageTimings()
    timings.end(QUEUE)
    chunked, ids_and_faults = _read(
        block.lines, served.featurizer, limits, chunk_characters, explain=explain
    )
    timings.end(READ)
    epoch = served.thresholds.epoch
    options = with_present_thresholds(options, served)
    predictions = search_chunked(served.predictor.predict, chunked, options, served)
    timings.end(SEARCH)
    json_predictions = write_predictions(
        predictions,
        options,
        epoch,
        served,
        describe_labels(predictions, chunked, served, info, explain=explain),
        chunked.unknown,
    )
    answers = (
        json_predictions
        if ids_and_faults is None
        else _answer_lines(json_predictions, ids_and_faults, block.first)
    )
    timings.end(WRITE)
    n_rows = len(predictions.ptr) - 1
    return Answered(b"\n".join([*answers, b""]), n_rows, len(block.lines) - n_rows)


def _answer_lines(
    json_predictions: Iterable[bytes], ids_and_faults: "Iterable[_IdAndFault]", first: int
) -> Iterator[bytes]:
    """Yield the answer to each line: its prediction or its error, with the line's id if it has one.

    first   the number of the first line
    """
    next_predictions = iter(json_predictions)
    for number, (identity, fault) in zip(count(first), ids_and_faults, strict=False):
        if fault is not None:
            error = {"error": {**describe_error(fault), "line": number}}
            yield dump(error if identity is None else {"id": identity, **error})
        elif identity is None:
            yield next(next_predictions)
        else:
            yield b'{"id":%b,%b' % (dump(identity), next(next_predictions)[1:])


def answers_of(served: ServedVersion, options: Options, limits: Limits) -> Callable[..., Answered]:
    """Return a function that answers blocks of lines with these options, called as `answer_block`.

    Raises as `to_options`.
    """
    return partial(
        answer_block,
        served=served,
        options=to_options(options, served),
        limits=limits,
        explain=options.explain,
        info=label_info_options(options, served.info),
        chunk_characters=options.chunk_characters,
    )


# the id that the answer to a line repeats, and the error if the line has no row
_IdAndFault: TypeAlias = tuple[str | int | None, BadInput | None]


def _read(
    lines: Sequence[bytes | None],
    featurizer: Featurizer,
    limits: Limits,
    chunk_characters: int | None,
    *,
    explain: bool,
) -> tuple[ChunkedRows, list[_IdAndFault] | None]:
    """Read lines: return the rows of the valid ones, and for each line its id and error.

    The second value is None if no line has an id or an error.

    explain  whether the texts are needed for explanations; the kernels that read plain lines do not
             keep them
    """
    plain = None if explain else _plain_rows(lines, featurizer, limits, chunk_characters)
    if plain is not None:
        return plain, None
    parsed: list[AnyLine | BadInput] = [value_of(line, limits, parse_line) for line in lines]
    chunked, faults = rows_and_faults(
        [line for line in parsed if not isinstance(line, BadInput)],
        featurizer,
        partial(divide_texts, characters_max=chunk_characters),
    )
    next_fault = iter(faults)
    ids_and_faults: list[_IdAndFault] = [
        (None, line) if isinstance(line, BadInput) else (line.id, next(next_fault))
        for line in parsed
    ]
    return chunked, ids_and_faults


def _plain_rows(
    lines: Sequence[bytes | None],
    featurizer: Featurizer,
    limits: Limits,
    chunk_characters: int | None,
) -> ChunkedRows | None:
    """Read lines that are all valid, without ids, and either all sparse instances or all texts.

    Returns None if any line is something else, or if texts are to be divided.
    """
    complete_lines = [line for line in lines if line is not None]
    if len(complete_lines) < len(lines):
        return None
    arrays = read_sparse_lines(complete_lines, limits.features_max)
    if arrays is not None:
        try:
            return ChunkedRows(featurizer.transform_csr(*arrays), None, [])
        except BadInput:
            return None
    if chunk_characters is not None:
        return None
    rows = text_rows_of_lines(complete_lines, featurizer, limits.text_bytes_max)
    return rows and ChunkedRows(rows, None, np.flatnonzero(np.diff(rows.indptr) == 0).tolist())
