"""What it costs to find concepts in texts by their names: `python -m benchmarks matching`.

Generated: words of up to nine letters; names of one to three of them; texts by Zipf's law. About as
many concepts are found in a text as those of YSO, 27,787, in the questions to Finnish libraries:
31.
"""

import time

import numpy as np

from benchmarks.runs import Settings, note, show
from xylem.vocabulary.concepts import concepts_of
from xylem.vocabulary.matching import NAME_FEATURES, NameMatcher
from xylem.vocabulary.names import NameParameters, build_names
from xylem_store.label_info import Subject

SIZES = (27_787, 1_000_000)
N_TEXTS, TEXT_WORDS = 200, 170


def run(settings: Settings) -> None:
    """Print the table."""
    rows = [_row(n, stem, settings.repeats) for n in SIZES for stem in (None, "en")]
    columns = "names, words", "arrays, s", "MB", "a text, us", "concepts a text"
    title = f"names of concepts in texts of {TEXT_WORDS} words, one text a call, one thread"
    show(settings, title, columns, rows)


def _row(n_names: int, stem: str | None, repeats: int) -> tuple[str, ...]:
    name = f"{n_names:,}, {'stemmed' if stem else 'as they are'}"
    note(name)
    random = np.random.default_rng(0)
    letters = random.choice(list("aeiourstlnmk"), (2 * n_names, 9))
    sizes = random.integers(4, 10, 2 * n_names).tolist()
    words = ["".join(row[:size]) for row, size in zip(letters.tolist(), sizes, strict=True)]
    of_names = random.integers(0, len(words), (n_names, 3)).tolist()
    lengths = random.integers(1, 4, n_names).tolist()
    names = [
        " ".join(words[i] for i in row[:size]) for row, size in zip(of_names, lengths, strict=True)
    ]
    concepts = concepts_of([Subject(f"{i}", None, {"en": text}) for i, text in enumerate(names)])
    start = time.process_time()
    arrays = build_names(concepts, NameParameters(stem=stem))
    seconds = time.process_time() - start
    matcher = NameMatcher(arrays, NameParameters(stem=stem))
    ranks = np.exp(random.random((N_TEXTS, TEXT_WORDS)) * np.log(len(words))).astype(int) - 1
    texts = [" ".join(words[i] for i in row) for row in ranks.tolist()]
    found = [matcher.rows_of_words(matcher.words([text])) for text in texts]
    n_found = sum(len(np.unique(rows.indices // len(NAME_FEATURES))) for rows in found)
    passes = []
    for _ in range(repeats):
        start = time.thread_time()
        for text in texts:
            matcher.rows_of_words(matcher.words([text]))
        passes.append((time.thread_time() - start) / N_TEXTS * 1e6)
    megabytes = sum(array.nbytes for array in arrays.values()) / 1e6
    return (
        name,
        f"{seconds:.1f}",
        f"{megabytes:.0f}",
        f"{min(passes):.0f}",
        f"{n_found / N_TEXTS:.0f}",
    )
