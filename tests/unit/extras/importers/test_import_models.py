"""Small models of every library: the scores are those of the
definition, damage is refused with its place.
"""

import os
import random
import struct
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.helpers import foreign_models as foreign
from tests.helpers.foreign_models import hinge, logistic, scores

from xylem.base.errors import BadData, BadModel, BadParameter
from xylem.engine.features.registry import load_featurizer
from xylem.engine.predictor import PredictOptions, Predictor
from xylem.extras.importers.files import ModelFiles
from xylem.extras.importers.registry import IMPORTERS, import_model
from xylem_store import build as weights_module
from xylem_store.errors import InvalidName
from xylem_store.manifest import Manifest
from xylem_store.names import name_of
from xylem_store.store import Store

TRIPLE = scores(lambda margin: logistic(3 * margin))
UNSURE_ROOT = struct.pack("<iiiQQQQBif", 2, 1, 0, 2, 1, 2, 1, 1, 1, 0.75) + b"\0"
UNSURE = scores(logistic, True) * logistic(0.75)
CASES: dict[str, tuple[str, Callable[[Path], None], np.ndarray]] = {
    "pecos l3": ("pecos", foreign.save_pecos, scores(hinge(3))),
    "pecos l2": ("pecos", partial(foreign.save_pecos, post_processor="l2-hinge"), scores(hinge(2))),
    "pecos sigmoid": (
        "pecos",
        partial(foreign.save_pecos, post_processor="sigmoid"),
        scores(logistic),
    ),
    "omikuji hinge": ("omikuji", foreign.save_omikuji, scores(hinge(2), True)),
    "omikuji log": ("omikuji", partial(foreign.save_omikuji, loss="Log"), scores(logistic, True)),
    "napkinxc log": ("napkinxc", foreign.save_napkinxc, scores(logistic, True)),
    "napkinxc l2": ("napkinxc", partial(foreign.save_napkinxc, loss=1), scores(hinge(2), True)),
    "a root that is unsure": ("napkinxc", partial(foreign.save_napkinxc, root=UNSURE_ROOT), UNSURE),
    "libmultilabel": ("libmultilabel", foreign.save_libmultilabel, TRIPLE),
    "an ensemble averages": (
        "libmultilabel",
        partial(foreign.save_libmultilabel, n_trees=2),
        TRIPLE,
    ),
}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def answers(store: Store, manifest: Manifest) -> np.ndarray:
    """The scores of all labels for the rows of the small model."""
    model = store.open(manifest.model)
    featurizer = load_featurizer(manifest.features, model.arrays, manifest.n_features)
    rows = featurizer.transform_csr(foreign.ROWS.indptr, foreign.ROWS.indices, foreign.ROWS.data)
    found = Predictor(model).predict(rows, PredictOptions(top_r=5, exact=True))
    dense = np.zeros((rows.n_rows, 5))
    dense[np.repeat(np.arange(rows.n_rows), np.diff(found.ptr)), found.labels] = found.scores
    return dense


@pytest.mark.parametrize("case", CASES)
def test_scores_are_those_of_the_definition(store: Store, tmp_path: Path, case: str) -> None:
    library, save, expected = CASES[case]
    save(tmp_path / "foreign")
    manifest = import_model(store, library, tmp_path / "foreign")
    assert (manifest.model, manifest.n_features, manifest.n_labels) == (
        "foreign",
        foreign.N_FEATURES,
        5,
    )
    assert manifest.trainer.name == f"import-{library}"
    np.testing.assert_allclose(answers(store, manifest), expected, atol=2e-6)


def test_rows_may_have_features_that_the_files_do_not_know(store: Store, tmp_path: Path) -> None:
    foreign.save_napkinxc(tmp_path / "m")
    manifest = import_model(store, "napkinxc", tmp_path / "m", n_features=5000)
    assert manifest.n_features == 5000
    np.testing.assert_allclose(answers(store, manifest), scores(logistic, True), atol=2e-6)
    with pytest.raises(BadParameter, match="--features: expected 7, which"):
        import_model(store, "napkinxc", tmp_path / "m", n_features=6)


def test_a_file_is_a_model_too(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.pickle"
    file.write_bytes(foreign.libmultilabel_pickle(n_trees=2))
    manifest = import_model(store, "libmultilabel", file)
    assert (manifest.model, manifest.n_trees) == ("pipeline.pickle", 2)


@pytest.mark.parametrize(
    ("weights", "most"), [("float32", 2e-6), ("bfloat16", 0.02), ("int8", 0.02)]
)
def test_weights_are_stored_as_asked(
    weights: str, most: float, store: Store, tmp_path: Path
) -> None:
    foreign.save_omikuji(tmp_path / "foreign", "Log")
    manifest = import_model(store, "omikuji", tmp_path / "foreign", model="m", weights=weights)
    assert (manifest.weights, store.open("m").manifest.weights) == (weights, weights)
    np.testing.assert_allclose(answers(store, manifest), scores(logistic, True), rtol=0, atol=most)
    with pytest.raises(
        BadParameter, match="--weights: expected one of float32, bfloat16, int8, found 'f'"
    ):
        import_model(store, "omikuji", tmp_path / "foreign", weights="f")


def test_too_many_children_are_refused(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign.save_pecos(tmp_path / "foreign")
    monkeypatch.setitem(weights_module.CHILDREN_MAX, "int8", 2)
    with pytest.raises(
        BadParameter, match=r"int8: node \d+: expected at most 2 children for int8, found 3"
    ):
        import_model(store, "pecos", tmp_path / "foreign", model="m", weights="int8")
    assert store.models() == []
    assert import_model(store, "pecos", tmp_path / "foreign", model="m").version == 1


def test_labels_are_named_by_a_file(store: Store, tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    for library, save in foreign.SAVERS.items():
        save(tmp_path / library)
        names.write_text("a\nb\nc\nd\n")
        with pytest.raises(BadData, match=r"names\.txt: expected (at least )?5 names"):
            import_model(store, library, tmp_path / library, names)
    names.write_text("a\nb\nc\nd\né\n")
    import_model(store, "pecos", tmp_path / "pecos", names)
    assert [name_of(store.open("pecos").labels, i) for i in (0, 4)] == ["a", "é"]
    names.write_text("a\nb\nc\nd\ne\nf\n")
    with pytest.raises(BadData, match="expected 5 names"):
        import_model(store, "libmultilabel", tmp_path / "libmultilabel", names)
    # a label without training rows is in no tree of omikuji's
    assert import_model(store, "omikuji", tmp_path / "omikuji", names).n_labels == 6


def test_what_is_asked_for_is_checked_first(store: Store, tmp_path: Path) -> None:
    with pytest.raises(BadParameter, match=r"expected one of pecos, .*'xgboost'"):
        import_model(store, "xgboost", tmp_path)
    with pytest.raises(InvalidName):
        import_model(store, "pecos", tmp_path / "No Name")
    assert store.models() == []


@pytest.mark.parametrize("library", IMPORTERS)
def test_paths_that_hold_no_model(tmp_path: Path, library: str) -> None:
    pipes = tmp_path / "pipes"
    pipes.mkdir()
    for name in ("linear_pipeline.pickle", "args.bin"):
        os.mkfifo(pipes / name)
    for path in (tmp_path / "none", tmp_path, Path("/dev/zero"), pipes):
        with pytest.raises(BadModel, match=f"^{path}"):
            IMPORTERS[library](ModelFiles(path))


def saved(library: str, path: Path) -> list[Path]:
    """The files of a small model, written to a directory."""
    foreign.SAVERS[library](path)
    return sorted(file for file in path.rglob("*") if file.is_file())


@pytest.mark.parametrize("library", IMPORTERS)
def test_cuts_are_refused_by_the_files_name(tmp_path: Path, library: str) -> None:
    for file in saved(library, tmp_path / "m"):
        whole = file.read_bytes()
        for length in range(0, len(whole), 5):
            file.write_bytes(whole[:length])
            with pytest.raises(BadModel) as refusal:
                IMPORTERS[library](ModelFiles(tmp_path / "m"))
            assert str(refusal.value).startswith(f"{file}: expected "), (file.name, length)
        file.write_bytes(whole + b"\0")
        if file.suffix != ".npz":  # a zip archive may have a comment
            with pytest.raises(BadModel):
                IMPORTERS[library](ModelFiles(tmp_path / "m"))
        file.unlink()
        if (
            file.name != "tree1.cbor"
        ):  # without its last tree an ensemble of omikuji is a smaller one
            with pytest.raises(BadModel):
                IMPORTERS[library](ModelFiles(tmp_path / "m"))
        file.write_bytes(whole)
    IMPORTERS[library](ModelFiles(tmp_path / "m"))


@pytest.mark.parametrize("library", IMPORTERS)
def test_flipped_bits_give_a_model_or_a_refusal(tmp_path: Path, library: str) -> None:
    rng, refused, files = random.Random(3), 0, saved(library, tmp_path / "m")
    for _ in range(400):
        file = rng.choice(files)
        whole = file.read_bytes()
        mutated = bytearray(whole)
        for _ in range(rng.choice((1, 1, 3))):
            mutated[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        file.write_bytes(mutated)
        try:
            found = IMPORTERS[library](ModelFiles(tmp_path / "m"))
            assert len(found.trees) > 0
        except BadModel as refusal:
            refused += 1
            assert str(refusal).startswith(str(tmp_path / "m"))
        file.write_bytes(whole)
    assert refused > 100


def test_huge_ids_in_small_files_are_refused(store: Store, tmp_path: Path) -> None:
    """A label's id costs memory in the tables of labels, a feature's in those of every node."""
    tree = foreign.omikuji_tree()
    tree["Branch"]["children"][1]["Leaf"]["labels"][0] = (1 << 31) - 9
    foreign.save_omikuji(tmp_path / "labels")
    (tmp_path / "labels" / "tree0.cbor").write_bytes(foreign.to_cbor(tree))
    foreign.save_napkinxc(tmp_path / "features")
    scorer = (
        struct.pack("<iiiQQQQBif", 2, 1, 0, 1 << 30, 1, 1 << 30, 1, 1, (1 << 30) - 1, 0.75) + b"\0"
    )
    (tmp_path / "features" / "weights.bin").write_bytes(struct.pack("<i", 8) + scorer * 8)
    for library, name in (("omikuji", "labels"), ("napkinxc", "features")):
        with pytest.raises(BadModel, match=r"expected ids that fit \d+ bytes of files"):
            import_model(store, library, tmp_path / name)


def test_declared_sizes_are_held_against_the_file(tmp_path: Path) -> None:
    """Sizes of gigabytes in small files cost nothing."""
    for library, save in foreign.SAVERS.items():
        save(tmp_path / library)
        IMPORTERS[library](ModelFiles(tmp_path / library))  # loads what takes memory once
    huge = struct.pack("<Q", 1 << 36)
    weights = tmp_path / "napkinxc" / "weights.bin"
    cuts = {
        ("omikuji", "tree0.cbor"): b"\x9b" + struct.pack(">Q", 1 << 36) + b"\0" * 9,
        ("napkinxc", "args.bin"): huge,
        ("napkinxc", "tree.bin"): struct.pack("<ii", 5, (1 << 31) - 3),
        ("napkinxc", "weights.bin"): weights.read_bytes()[:28]
        + struct.pack("<Q", 1 << 30) * 4
        + b"\1",
        ("libmultilabel", "linear_pipeline.pickle"): b"\x80\x05\x96" + huge + b"\0" * 9,
    }
    for (library, name), data in cuts.items():
        file = tmp_path / library / name
        whole = file.read_bytes()
        file.write_bytes(data)
        tracemalloc.start()
        with pytest.raises(BadModel, match=name):
            IMPORTERS[library](ModelFiles(tmp_path / library))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1 << 21, (library, name)
        file.write_bytes(whole)
