"""The Python client, `xylem predict --url` and the pages about them, against a real server."""

import asyncio
import importlib.util
import json
import math
import re
import shutil
import ssl
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from tests.conftest import Run
from tests.helpers.served_models import publish_all, publish_model
from tests.helpers.servers import ServerProcess
from tests.helpers.small_models import softmax_draft
from tests.helpers.stub_service import KEY, StubService, running
from tests.helpers.tls_relay import make_certificate, relay

import xylem
from xylem.admin.jobs.data import DataRoot
from xylem.admin.jobs.kinds import check_request
from xylem.base.settings import Limits
from xylem.workflows.train import TrainRequest, train_and_publish
from xylem_store.store import Store

ROOT = Path(__file__).resolve().parents[2]
RAW = {"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    root = tmp_path_factory.mktemp("store")
    store = publish_all(root)
    publish_model(store, "debtags", "tfidf")
    store.publish("softmax", softmax_draft(3))
    publish_words(store)
    with ServerProcess(root, body_seconds_max=5) as process:
        yield process


def test_predict_feedback_and_what_there_is(server: ServerProcess) -> None:
    with xylem.Client(server.url) as client:
        answer = client.predict("raw", [RAW, RAW], alias="stable", top_r=3, explain=True)
        assert (answer.model, answer.version, len(answer)) == ("raw", 1, 2)
        first = answer[0].labels[0]
        assert first.score >= answer[0].labels[1].score and first.explanation is not None
        events = [{"prediction_id": one.prediction_id, "labels": [first.label]} for one in answer]
        told = client.feedback("raw", [*events, {"prediction_id": "forged", "labels": []}])
        assert [verdict.result for verdict in told.results] == ["applied", "applied", "rejected"]
        again = [{**events[0], "event_id": told.results[0].event_id}] * 300
        assert {verdict.result for verdict in client.feedback("raw", again).results} == {
            "duplicate"
        }
        page = client.thresholds("raw", version=1, limit=3)
        assert (page.n_labels, len(page.labels), page.next_offset) == (11, 3, 3)
        assert client.call("GET", "/v1/models/raw/versions/1/thresholds")["n_events"] == 2
        assert client.model("raw").version_details[0]["n_labels"] == 11
        names = [model.name for model in client.models()]
        assert names == ["debtags", "hashed", "named", "raw", "softmax", "text", "words"]
        with pytest.raises(xylem.ProblemError) as caught:
            client.predict("raw", [RAW, {"indices": [1], "values": ["x"]}])
        assert caught.value.errors[0].path == "instances[1].values[0]"
        assert caught.value.request_id


def publish_words(store: Store) -> None:
    """Publish a model of next words."""
    with TemporaryDirectory() as directory:
        data = Path(directory) / "texts.jsonl"
        data.write_text('{"text": "one two three four one two three four"}\n' * 20)
        request = TrainRequest(
            trainer="huffman-tree", data=data, parameters=["task=text", "dim=8", "epochs=2"]
        )
        train_and_publish(store, "words", request)


def test_score_has_the_scores_of_labels_and_of_texts(server: ServerProcess) -> None:
    labels = [f"label::{i}" for i in range(11)]
    row = {"indices": np.array([1, 5, 23], np.int32), "values": np.array([1, 0.5, -2], np.float32)}

    async def ask() -> xylem.Scores:
        async with xylem.AsyncClient(server.url) as client:
            return await client.score("softmax", [row], alias="latest", labels=labels)

    with xylem.Client(server.url) as client:
        found = client.score(
            "softmax", [row, {**row, "labels": labels[3:1:-1]}], version=1, labels=labels
        )
        assert (found.model, found.version, len(found)) == ("softmax", 1, 2)
        first, second = found
        assert [label.label for label in first.labels] == labels
        assert second.labels == first.labels[3:1:-1]
        assert first.log_score is None and first.perplexity is None
        assert asyncio.run(ask()).scores == [first]

        (text,) = client.score("words", ["two three"], sequence=True)
        assert [label.label for label in text.labels] == ["two", "three", "</s>"]
        logs = [label.log_score for label in text.labels if label.log_score is not None]
        assert text.log_score == pytest.approx(sum(logs), rel=1e-5)
        assert text.perplexity == pytest.approx(math.exp(-sum(logs) / 3), rel=1e-5)

        with pytest.raises(TypeError, match="labels: expected several"):
            client.score("softmax", [row], labels="label::1")
        with pytest.raises(TypeError, match="instances: expected several"):
            client.score("softmax", row, labels=labels)  # type: ignore[arg-type]


def test_a_batch_streams_both_ways_in_bounded_memory(server: ServerProcess) -> None:
    n_rows, asked, most_ahead = 40_000, 0, 0

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal asked
        for i in range(n_rows):
            asked += 1
            yield {"id": i, **RAW} if i % 1000 else {"id": i, "indices": [-1], "values": [1.0]}

    with xylem.Client(server.url) as client:
        list(client.batch("raw", [RAW] * 2000))
        tracemalloc.start()
        try:
            for i, item in enumerate(client.batch("raw", rows(), top_r=5)):
                most_ahead = max(most_ahead, asked - i)
                assert item.id == i
                if i % 1000:
                    assert isinstance(item, xylem.Prediction) and len(item.labels) == 5
                else:
                    assert isinstance(item, xylem.LineError) and item.line == i + 1
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert i + 1 == n_rows
    assert most_ahead < n_rows / 2
    assert peak < 16 << 20


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_it_all_goes_over_tls(server: ServerProcess, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=str(certificate))
    n_rows = 20_000
    with relay(server.port, certificate, key) as port:
        with xylem.Client(f"https://localhost:{port}", "the-key", tls=trusting) as client:
            assert client.predict("raw", [RAW], version=1).version == 1
            found = client.batch("raw", ({"id": i, **RAW} for i in range(n_rows)), top_r=5)
            assert [item.id for item in found] == list(range(n_rows))
        with xylem.Client(f"https://localhost:{port}", "the-key", retries=0) as stranger:
            for call in (stranger.models, lambda: list(stranger.batch("raw", [RAW]))):
                with pytest.raises(xylem.ConnectionFailed, match="certificate verify failed"):
                    call()


def test_predict_with_a_url_prints_what_predict_does(
    server: ServerProcess, run_here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [{"text": "an editor"}, {"id": "x", "text": "chess"}, {"text": 7}, {"text": "x" * 3000}]
    data, key = tmp_path / "in.jsonl", tmp_path / "key"
    data.write_text(
        "\ufeff" + "\n".join([*map(json.dumps, texts), "", "nonsense", '{"text": "last"}'])
    )
    key.write_text("the-key\n")
    monkeypatch.setenv("XYLEM_LINE_BYTES_MAX", "2000")
    options = ("text", "--data", data, "--top-r", "2", "--beam-width", "4", "--explain")
    local = run_here("predict", *options, store=server.store)
    remote = run_here(
        "predict", *options, "--url", server.url, "--key-file", key, store=tmp_path / "none"
    )
    assert not (tmp_path / "none").exists()  # a store of that name is not opened
    assert (local.returncode, remote.returncode, remote.stderr) == (2, 2, local.stderr)

    def without_ids(lines: str) -> str:
        return re.sub(r'"prediction_id":"[^"]*"', "", lines)

    assert without_ids(remote.stdout) == without_ids(local.stdout)
    assert remote.stdout.count('"explanation"') == 2 * remote.stdout.count('"labels"') > 0
    assert remote.stdout.count('"error"') == 4 and "limit-exceeded" in remote.stdout
    monkeypatch.setenv("XYLEM_KEY", "another key")
    for more, said in (
        (("text", "--store", server.store), "--store cannot be used with --url"),
        (("text", "--threads", 2), "--threads cannot be used with --url"),
        (("none", "--key-file", key), "404 model-not-found"),
        (("text@9", "--key-file", key), "404 version-not-found"),
        (("text", "--threshold", "x", "--key-file", key), "422 bad-request"),
        (("text", "--key-file", data), "expected a key and nothing else"),
        (("text",), "--key: expected visible characters"),
    ):
        refused = run_here(
            "predict", *more, "--url", server.url, store=server.store, input='{"text": "x"}\n'
        )
        assert (refused.returncode, said in refused.stderr) == (2, True), refused.stderr
        assert "the-key" not in refused.stderr and "another key" not in refused.stderr


def blocks(page: str, language: str) -> list[str]:
    """The examples of a page in a language."""
    text = (ROOT / "docs" / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_every_example_of_the_client_runs(
    server: ServerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.jsonl").write_text('{"text": "x", "labels": []}\n')
    examples = blocks("client.md", "python")
    assert len(examples) == 11
    names: dict[str, Any] = {}
    service = StubService()
    with running(service) as stub:
        for example in examples:
            is_admin = "admin" in example
            there = example.replace("http://127.0.0.1:8080", stub if is_admin else server.url)
            there = there.replace("use::editing", "label::0").replace("game::board", "label::3")
            exec(compile(there.replace("the-admin-key", KEY), "client.md", "exec"), names)
    shown = capsys.readouterr().out
    assert "404 model-not-found" in shown
    assert "applied" in shown or "duplicate" in shown
    assert "succeeded 4 Promotion(promoted=True" in shown
    assert (tmp_path / "predictions.jsonl").stat().st_size > 100_000
    for job in service.jobs.values():
        check_request(job["kind"], job["fields"], DataRoot(tmp_path, 1 << 20), Limits())


def test_every_recipe_for_batches_runs(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XYLEM_KEY", raising=False)
    n_rows = 5000
    rows = "".join(
        json.dumps({"id": i, "text": f"chess for terminal {i}"}) + "\n" for i in range(n_rows)
    )
    (tmp_path / "instances.jsonl").write_text(rows)
    ran = []
    for language in ("python", "sh"):
        for example in blocks("batch.md", language):
            kinds = ("aiohttp", "httpx", "curl", "xylem predict", "import xylem")
            kind = next(kind for kind in kinds if kind in example)
            if kind == "aiohttp" and importlib.util.find_spec("aiohttp") is None:
                continue
            if kind == "curl" and shutil.which("curl") is None:
                continue
            there = example.replace("http://127.0.0.1:8080", server.url)
            there = there.replace("xylem predict", f"{sys.executable} -m xylem.cli.entry predict")
            command = ["sh", "-c", there] if language == "sh" else [sys.executable, "-c", there]
            done = subprocess.run(
                command, capture_output=True, text=True, cwd=tmp_path, check=False
            )
            assert done.returncode == 0, done.stderr
            if kind == "import xylem":
                assert done.stdout.count("label::") == 3 * n_rows
            else:
                found = (tmp_path / "predictions.jsonl").read_text().splitlines()
                assert [json.loads(line)["id"] for line in found] == list(range(n_rows))
                (tmp_path / "predictions.jsonl").unlink()
            ran.append(kind)
    assert {"httpx", "xylem predict", "import xylem"} <= set(ran)
