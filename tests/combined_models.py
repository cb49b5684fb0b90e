"""A combined version of two members and seven names, on texts that have the names of their labels."""

import random
from pathlib import Path

from model_store.store import Store
from service.workflows.combine import CombineRequest, combine_and_publish
from service.workflows.train import TrainRequest, train_and_publish
from tests.datasets_helpers import write_lines

NAMES = ["apple tree", "river boat", "steam engine", "honey bee", "paper mill", "snow owl", "salt mine"]
WORDS = ["old", "new", "small", "tall", "quiet", "loud", "early", "late", "green", "brown", "near", "far"]


def documents(n: int, seed: int) -> list[dict[str, object]]:
    draw = random.Random(seed)
    found: list[dict[str, object]] = []
    for _ in range(n):
        true = draw.sample(range(6), 2)
        words = [word for label in true for word in NAMES[label].split()] + draw.sample(WORDS, 5)
        draw.shuffle(words)
        found.append({"text": " ".join(words), "labels": [f"l{label}" for label in true]})
    return found


def publish_combined(home: Path) -> Store:
    """Publish `both`, of two members and names, in a store below a directory: the label l6 is in no row."""
    made = Store(home / "store")
    data = write_lines(home / "train.jsonl", documents(150, 1))
    for model, kind in (("words", "tfidf"), ("chars", "chars")):
        request = TrainRequest("label-tree", data, parameters=(f"features.kind={kind}",))
        train_and_publish(made, model, request)
    names = home / "names.csv"
    names.write_text("uri,label_en\n" + "".join(f"l{i},{name}\n" for i, name in enumerate(NAMES)))
    valid = write_lines(home / "valid.jsonl", documents(110, 2))
    combine_and_publish(made, "both", CombineRequest([("words", 1), ("chars", 1)], valid, names, "en"))
    return made
