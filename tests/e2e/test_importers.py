"""Round trips: a library trains, saves and predicts; imported by the
command line, its model answers alike.

Every library runs in a virtual environment of its own, which `make peers` installs; without it a
test skips.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks.data import Prepared, prepare
from benchmarks.peers.environments import DIRECTORY, HERE, python_of

from xylem.datasets import read_dataset
from xylem.engine.features.parameters import parameters_of
from xylem.engine.features.registry import default_kind, fit_featurizer, load_featurizer
from xylem.engine.predictor import PredictOptions, Predictor
from xylem_store.store import Store

pytestmark = [pytest.mark.peers, pytest.mark.timeout(0)]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "debtags" / "train.jsonl.gz"
XYLEM = Path(sys.executable).with_name("xylem")
N_TRAIN, N_TEST = 2000, 300
TOP_R = 10
WIDE = ("--beam-width", "100000")
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Rows of the example data, of different lengths, as every library reads them."""
    home = tmp_path_factory.mktemp("data")
    dataset = read_dataset(EXAMPLES)
    _, rows = fit_featurizer(dataset, parameters_of({"kind": default_kind(dataset)}))
    labels = sp.csr_matrix(
        (np.ones(len(dataset.labels.indices)), dataset.labels.indices, dataset.labels.indptr),
        (rows.n_rows, dataset.labels.n_labels),
    )
    features = sp.csr_matrix(
        (rows.values, rows.indices, rows.indptr), (rows.n_rows, rows.n_features)
    )
    # omikuji takes no row without a feature, libmultilabel no label without a row
    usable = np.flatnonzero((np.diff(features.indptr) > 0) & (np.diff(labels.indptr) > 0))[
        : N_TRAIN + N_TEST
    ]
    features = sp.diags(np.linspace(0.5, 2.0, len(usable))) @ features[usable]
    labels = labels[usable][:, np.flatnonzero(labels[usable[:N_TRAIN]].getnnz(0))]
    for part, cut in (("train", slice(0, N_TRAIN)), ("test", slice(N_TRAIN, None))):
        write_text(home / "small" / f"{part}.txt", features[cut].tocsr(), labels[cut].tocsr())
    return prepare(home / "small", home / "out")


def write_text(file: Path, rows: sp.csr_matrix, labels: sp.csr_matrix) -> None:
    file.parent.mkdir(exist_ok=True)
    lines = [f"{rows.shape[0]} {rows.shape[1]} {labels.shape[1]}"]
    for i in range(rows.shape[0]):
        pairs = zip(rows[i].indices.tolist(), rows[i].data.tolist(), strict=True)
        text = " ".join(f"{feature}:{value:.6f}" for feature, value in pairs)
        lines.append(f"{','.join(map(str, sorted(labels[i].indices.tolist())))} {text}")
    file.write_text("\n".join(lines) + "\n")


def peer(request: pytest.FixtureRequest, name: str) -> list[str]:
    """The command of a library's script; skips when its
    environment is not there and cannot be made.
    """
    if not (DIRECTORY / name / "ready").exists():
        if request.config.option.markexpr != "peers":
            pytest.skip(f"{name} is not installed under benchmarks/peers/.venvs: make peers")
        try:
            python_of(name)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"{name} could not be installed: {error}")
    return [str(python_of(name)), str(HERE / f"{name}_peer.py")]


def run(command: list[str], *arguments: object) -> None:
    done = subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def imported(path: Path, library: str, store: Path, *options: object) -> Store:
    """Import by the command line; return the store that has the model, m, in it."""
    command = [
        XYLEM,
        "models",
        "import",
        "--from",
        library,
        path,
        "--store",
        store,
        "--model",
        "m",
        "--json",
    ]
    done = subprocess.run(
        [*map(str, [*command, *options])], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"model": "m", "version": 1}
    return Store(store)


def n_features(data: Prepared) -> int:
    """The features of the rows; napkinXC's files know only of those that a training row has."""
    return int(sp.load_npz(data.work / "test.rows.npz").shape[1])


def check_answers(store: Store, data: Prepared, found_file: Path, options: PredictOptions) -> None:
    """The library's scores are ours to TOLERANCE, and no other label has a higher one."""
    model = store.open("m")
    rows = sp.load_npz(data.work / "test.rows.npz").tocsr()
    found = sp.load_npz(found_file).tocsr()
    assert rows.shape[0] == found.shape[0] >= 200
    featurizer = load_featurizer(model.manifest.features, model.arrays, model.manifest.n_features)
    transformed = featurizer.transform_csr(rows.indptr, rows.indices, rows.data)
    answers = Predictor(model).predict(transformed, options)
    n_same = 0
    for i in range(rows.shape[0]):
        labels = answers.labels[answers.ptr[i] : answers.ptr[i + 1]].tolist()
        scores = answers.scores[answers.ptr[i] : answers.ptr[i + 1]]
        theirs = found[i]
        order = np.argsort(-theirs.data, kind="stable")
        np.testing.assert_allclose(scores[: len(order)], theirs.data[order], atol=TOLERANCE)
        ours = dict(zip(labels, scores.tolist(), strict=True))
        for label, score in zip(theirs.indices.tolist(), theirs.data.tolist(), strict=True):
            # labels that score alike up to the tolerance may change places at the end of the list
            assert abs(ours.get(label, scores[len(order) - 1]) - score) <= TOLERANCE
        n_same += set(theirs.indices.tolist()) == set(labels[: len(order)])
    assert n_same >= 0.98 * rows.shape[0]


EXACT = PredictOptions(top_r=TOP_R, exact=True)


def test_libpecos(request: pytest.FixtureRequest, data: Prepared, tmp_path: Path) -> None:
    command = peer(request, "libpecos")
    run(command, "train", data.work)
    store = imported(data.work / "libpecos", "pecos", tmp_path)
    for beam, options in (((), PredictOptions(top_r=TOP_R, beam_width=10)), (WIDE, EXACT)):
        run(command, "predict", data.work, "--repeats", 1, "--calls", 1, *beam)
        check_answers(store, data, data.work / "libpecos.found.npz", options)


@pytest.mark.parametrize("n_trees", [1, 3])
def test_omikuji(
    request: pytest.FixtureRequest, data: Prepared, tmp_path: Path, n_trees: int
) -> None:
    command = peer(request, "omikuji")
    run(command, "train", data.work, "--trees", n_trees)
    store = imported(data.work / f"omikuji-{n_trees}", "omikuji", tmp_path)
    run(command, "predict", data.work, "--trees", n_trees, *WIDE)
    check_answers(store, data, data.work / f"omikuji-{n_trees}.found.npz", EXACT)


def test_napkinxc(request: pytest.FixtureRequest, data: Prepared, tmp_path: Path) -> None:
    command = peer(request, "napkinxc")
    run(command, "train", data.work)
    store = imported(data.work / "napkinxc", "napkinxc", tmp_path, "--features", n_features(data))
    run(command, "predict", data.work, "--repeats", 1, "--calls", 1)
    check_answers(store, data, data.work / "napkinxc.found.npz", EXACT)


def test_libmultilabel(request: pytest.FixtureRequest, data: Prepared, tmp_path: Path) -> None:
    command = peer(request, "libmultilabel")
    run(command, "train", data.work, "--arity", 20)
    store = imported(data.work / "libmultilabel", "libmultilabel", tmp_path)
    run(command, "predict", data.work, "--repeats", 1, "--calls", 1, *WIDE)
    check_answers(store, data, data.work / "libmultilabel.found.npz", EXACT)
