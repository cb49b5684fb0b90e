"""A tree and names of concepts, beside Annif's ensemble of omikuji and MLLM, on the same documents.

python -m benchmarks ensembles --data DIR: with train.jsonl.gz, valid.jsonl.gz and vocabulary.tsv,
in Finnish; a second tree is trained on titles.jsonl.gz, if it is there

What combines the parts is fitted by folds of valid.jsonl.gz, the same for both, and measured on the
fold that was left out. A document is answered from its text, one call after another.
"""

import json
import shutil
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.peers.environments import HERE, python_of
from benchmarks.peers.figures import timed
from benchmarks.runs import Settings, note, show
from benchmarks.systems import System
from xylem.base.rows import Dataset, LabelRows, offsets
from xylem.datasets import read_dataset
from xylem.engine.combined_predictor import make_predictor
from xylem.engine.features.featurizer import Featurizer
from xylem.engine.options import PredictOptions
from xylem.engine.searcher import Searcher
from xylem.evaluation.ranking import PredictedRows
from xylem.vocabulary.combine import CombineRequest, combine_and_publish
from xylem.vocabulary.featurizers import featurizer_of
from xylem.vocabulary.ranker import FOLDS, ranking_figures
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.store import Store

FIGURES = ("P@1", "P@3", "P@5", "F1@5", "nDCG@10")
FEATURES = ("features.kind=words+chars", "features.stem=fi")


def run(settings: Settings) -> None:
    """Print the table."""
    for directory in (path for path in settings.directories if (path / "vocabulary.tsv").exists()):
        work = settings.out / f"ensembles-{directory.resolve().name}"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        valid = read_dataset(directory / "valid.jsonl.gz")
        rows = _ours(directory, work, valid)
        if not all(system.name.startswith("Xylem") for system in settings.systems):
            rows += _annif(directory, work, valid)
        show(
            settings,
            f"{directory.name}: {valid.n_rows} documents",
            ["", *FIGURES, "us a document"],
            rows,
        )


def _ours(directory: Path, work: Path, valid: Dataset) -> list[list[str]]:
    """Train and combine; return the lines of the table."""
    store, members, lines = Store(work / "store"), [], [[""]]
    for part in (name for name in ("train", "titles") if (directory / f"{name}.jsonl.gz").exists()):
        note(f"Xylem trains: {part}")
        request = TrainRequest(
            trainer="label-tree", data=directory / f"{part}.jsonl.gz", parameters=FEATURES
        )
        train_and_publish(store, part, request)
        members.append((part, 1))
        how = CombineRequest(
            members, directory / "valid.jsonl.gz", directory / "vocabulary.tsv", "fi"
        )
        said, opened = combine_and_publish(store, "both", how), store.open("both")
        predictor, featurizer = make_predictor(opened), featurizer_of(opened)
        calls = [partial(_answer, predictor, featurizer, text) for text in valid.texts or []]
        micros = min(median(timed(calls)) for _ in range(3)) * 1e6
        lines[0] = ["Xylem label-tree", *_percent(said["members"]["train@1"]), ""]
        title = f"Xylem label-tree{'s' * (len(members) > 1)} ({', '.join(dict(members))}) and names"
        lines.append([title, *_percent(said["combined"]), f"{micros:,.0f}"])
    return lines


def _answer(predictor: Searcher, featurizer: Featurizer, text: str) -> None:
    predictor.predict(featurizer.transform_texts([text]), PredictOptions(top_r=10))


def _percent(found: dict[str, float]) -> list[str]:
    return [f"{found[name]:.1f}" for name in FIGURES]


def _annif(directory: Path, work: Path, valid: Dataset) -> list[list[str]]:
    """Run the peer on the same documents; return the lines of the table."""
    for part in ("train", "valid"):
        rows = read_dataset(directory / f"{part}.jsonl.gz")
        names, labels = rows.label_names or [], rows.labels
        with (work / f"{part}.tsv").open("w") as file:
            for i, text in enumerate(rows.texts or []):
                own = labels.indices[labels.indptr[i] : labels.indptr[i + 1]].tolist()
                file.write(
                    f"{' '.join(text.split())}\t{' '.join(f'<{names[label]}>' for label in own)}\n"
                )
    shutil.copy(directory / "vocabulary.tsv", work)
    sentences = work / "nltk" / "tokenizers" / "punkt_tab" / "english"
    sentences.mkdir(parents=True)
    for name in ("collocations.tab", "sent_starters.txt", "abbrev_types.txt", "ortho_context.tab"):
        (sentences / name).touch()
    folds = (
        np.random.default_rng(0).permutation(valid.n_rows) % FOLDS
    )  # as `rank_by_folds` draws them
    (work / "folds.json").write_text(json.dumps(folds.tolist()))
    note("Annif trains")
    peer = System(
        "Annif 1.4.3", lambda: [str(python_of("annif")), str(HERE / "annif_peer.py")], (), ""
    )
    micros = peer.run("run", work)["one_call_us_p50"]
    lines: list[list[str]] = []
    ids = {name: i for i, name in enumerate(valid.label_names or [])}
    truth = LabelRows(
        valid.labels.indptr, valid.labels.indices, len(ids) + 1
    )  # the last: one of no row
    for name, rows_found in sorted(
        json.loads((work / "annif.json").read_text()).items(), reverse=True
    ):
        labels = np.array([ids.get(uri, len(ids)) for row in rows_found for uri in row], np.int32)
        ranked = PredictedRows(offsets(list(map(len, rows_found))), labels)
        found = ranking_figures(ranked, truth, np.zeros(valid.n_rows, np.int32))
        lines.append([name, *_percent(found), f"{micros:,.0f}" if "ensemble" in name else ""])
    return lines
