"""Annif's ensemble of omikuji and MLLM. Runs in the peer's environment; one JSON line a figure.

    python annif_peer.py run WORK

WORK has train.tsv and valid.tsv (text, tab, <URI> ...), vocabulary.tsv, and a directory nltk:
Annif's splitter of sentences wants data of English abbreviations, which may be empty. Weights are
Annif's own hyperopt's, for each fold of the documents of valid.tsv from the others; folds.json has
the fold of each.
"""

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

from figures import arguments, say_calls

PROJECTS = """
[omikuji]
name=omikuji
language=fi
backend=omikuji
analyzer=snowball(finnish)
vocab=vocabulary
limit=100
cluster_balanced=False
cluster_k=100
max_depth=3
[mllm]
name=MLLM
language=fi
backend=mllm
analyzer=snowball(finnish)
vocab=vocabulary
limit=100
[ensemble]
name=ensemble
language=fi
backend=ensemble
vocab=vocabulary
sources=omikuji,mllm
limit=100
"""
TRIALS = 20


def uris(found: Any, index: Any) -> list[list[str]]:
    """Return the URIs of a batch of suggestions, the best first."""
    best = [sorted(each, key=lambda hit: -hit.score)[:10] for each in found]
    return [[index[hit.subject_id].uri for hit in hits] for hits in best]


def run(work: Path) -> None:
    (work / "projects.cfg").write_text(PROJECTS)
    os.environ |= {"NLTK_DATA": str(work / "nltk"), "ANNIF_DATADIR": str(work / "annif-data")}
    os.chdir(work)
    import annif.registry
    from annif.corpus import DocumentFileTSV, DocumentList
    from annif.vocab import VocabFileTSV

    app = annif.create_flask_app()
    with app.app_context():
        omikuji, mllm, ensemble = (
            annif.registry.get_project(name) for name in ("omikuji", "mllm", "ensemble")
        )
        ensemble.vocab.load_vocabulary(VocabFileTSV("vocabulary.tsv", "fi"))
        index = ensemble.subjects
        for project in (omikuji, mllm):
            project.train(DocumentFileTSV("train.tsv", project.subjects))
        documents = list(DocumentFileTSV("valid.tsv", index).documents)
        folds = json.loads(Path("folds.json").read_text())
        found: dict[str, list[list[str]]] = {"Annif ensemble": [[]] * len(documents)}
        for project in (omikuji, mllm):
            found[f"Annif {project.name}"] = uris(project.suggest(documents), index)
        for fold in sorted(set(folds)):
            others = [one for one, own in zip(documents, folds, strict=True) if own != fold]
            best = ensemble.hyperopt(DocumentList(others), TRIALS, 1, "NDCG", None)
            sources = {"ensemble": {"sources": best.lines[-1].removeprefix("sources=")}}
            for i in (i for i, own in enumerate(folds) if own == fold):
                found["Annif ensemble"][i] = uris(ensemble.suggest([documents[i]], sources), index)[
                    0
                ]
        say_calls("one_call", [partial(ensemble.suggest, [document]) for document in documents])
    (work / "annif.json").write_text(json.dumps(found))


if __name__ == "__main__":
    run(arguments(__doc__, ["run"]).parse_args().work.resolve())
