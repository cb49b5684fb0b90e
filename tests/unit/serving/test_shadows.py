"""Shadows: what is compared, and that a slow or broken one stays within its bounds."""

import asyncio
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import pytest
from tests.helpers.oip_requests import HEADER, binary_body, csr, tensor
from tests.helpers.served_models import reply_of
from tests.helpers.servers import wait_for

import xylem.serving.shadows as module
from xylem.base.settings import Limits
from xylem.serving.dialects.dialect import Body, Reply
from xylem.serving.dialects.predict.dialect import PREDICT
from xylem.serving.dialects.tensors.dialect import TENSORS
from xylem.serving.live.opening import serve_model
from xylem.serving.live.served import ServedVersion
from xylem.serving.live.split import Chooser, LiveSplit
from xylem.serving.shadows import ShadowCopy, ShadowOutcome, Shadows, compare
from xylem_store.alias import PARTS, Alias, TrafficShare
from xylem_store.store import Store

ROWS = b'{"indices": [1, 5], "values": [1.0, 0.5]}, {"indices": [2], "values": [1.0]}'
BODY = b'{"instances": [%b], "top_r": 6}' % ROWS
TEXT = b'{"instances": [{"text": "a text editor"}]}'


class Versions(NamedTuple):
    """Two versions of a model: what answers, and what shadows it."""

    answered: ServedVersion
    shadow: ServedVersion


@pytest.fixture(scope="module")
def versions(shared_store: Path) -> Versions:
    return Versions(*(serve_model(Store(shared_store).open("raw", version)) for version in (1, 2)))


def top_labels(answer: Reply) -> list[list[str]]:
    predictions = orjson.loads(b"".join(answer.parts))["predictions"]
    return [[label["label"] for label in one["labels"][:5]] for one in predictions]


class Heard:
    """What became of copies."""

    def __init__(self, **limits: Any) -> None:
        self.outcomes: list[ShadowOutcome] = []
        self.shadows = Shadows(Limits(**limits), self.outcomes.append)

    def offer(self, versions: Versions, n: int = 1, body: bytes = BODY) -> None:
        answer = reply_of(BODY, versions.answered)
        self.offer_copies(*[ShadowCopy(PREDICT, Body(body), answer, *versions)] * n)

    def offer_copies(self, *copies: ShadowCopy) -> None:
        async def offer() -> None:
            for copy in copies:
                self.shadows.offer(copy)
            await asyncio.sleep(0)

        asyncio.run(offer())

    def results(self, n: int) -> Counter[str]:
        wait_for(lambda: len(self.outcomes) >= n)
        return Counter(outcome.result for outcome in self.outcomes)


@pytest.fixture
def heard() -> Iterator[Heard]:
    heard = Heard(shadow_time_share=1.0)
    yield heard
    heard.shadows.close()


def thresholds_of(versions: Versions) -> list[Any]:
    return [(one.thresholds.epoch, one.thresholds.thresholds.tolist()) for one in versions]


def test_versions_are_compared_by_labels_and_thresholds_stay(
    heard: Heard, versions: Versions
) -> None:
    one, two = (top_labels(reply_of(BODY, served)) for served in versions)
    agreed = tuple(
        sum(len(set(a[:top]) & set(b[:top])) for a, b in zip(one, two, strict=True))
        for top in (1, 5)
    )
    before = thresholds_of(versions)
    heard.offer(versions)
    heard.offer(Versions(versions.answered, versions.answered))
    assert heard.results(2) == {"answered": 2}
    assert thresholds_of(versions) == before
    outcome, of_itself = heard.outcomes
    assert (outcome.model, outcome.version, outcome.answered) == ("raw", 2, 1)
    assert (outcome.compared, outcome.agreed) == ((2, 10), agreed)
    assert agreed < of_itself.agreed == of_itself.compared == (2, 10)


def tensors_copy(
    versions: Versions, names: list[str], binary: bool, **parameters: Any
) -> ShadowCopy:
    """A copy of a request for tensors of these names for the rows of BODY, with the answer."""
    options = {"top_r": 6, "binary_data_output": binary, **parameters}
    outputs = [{"name": name} for name in names]
    asked = {
        "inputs": csr(orjson.loads(BODY)["instances"]),
        "outputs": outputs,
        "parameters": options,
    }
    body, headers = binary_body(asked) if binary else (orjson.dumps(asked), {})
    sent = Body(body, 0, headers.get(HEADER))
    answer = TENSORS.answer_fully(TENSORS.read(sent, Limits()), versions.answered)
    return ShadowCopy(TENSORS, sent, answer, *versions)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(
    "names", [[], ["label_ids"], ["scores", "labels"], ["exact", "label_ids", "scores"]]
)
def test_tensors_are_compared_too(
    heard: Heard, versions: Versions, names: list[str], binary: bool
) -> None:
    heard.offer(versions)
    heard.results(1)
    copy = tensors_copy(versions, names, binary)
    heard.offer_copies(copy, copy._replace(shadow=versions.answered))
    heard.results(3)
    of_predict, of_tensors, of_itself = heard.outcomes
    assert of_tensors._replace(seconds=0) == of_predict._replace(seconds=0)
    assert of_itself.compared == of_itself.agreed == (2, 10)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("name", ["labels", "label_ids"])
def test_places_without_a_label_are_not_compared(
    versions: Versions, name: str, binary: bool
) -> None:
    asked = orjson.loads(BODY) | {"threshold": 0.5}
    expected = top_labels(reply_of(orjson.dumps(asked), versions.answered))
    assert any(len(row) < 5 for row in expected)
    copy = tensors_copy(
        Versions(versions.answered, versions.answered), [name], binary, threshold=0.5
    )
    for reply in (copy.answer, copy.answer_again(Limits(), np.zeros(1, np.uint8))):
        found = copy.dialect.first_labels(b"".join(reply.parts), reply.n_json, 5, versions.answered)
        assert found == expected


def test_tensors_without_labels_and_those_that_are_not_taken(
    heard: Heard, versions: Versions
) -> None:
    right = tensors_copy(versions, ["scores"], False)
    heard.offer_copies(right)
    assert heard.results(1) == {"answered": 1}
    assert heard.outcomes[0].compared == (0, 0)
    text = orjson.dumps({"inputs": [tensor("text", ["a text editor"])]})
    heard.offer_copies(
        *(right._replace(body=Body(body)) for body in (text, right.body.message[:-1]))
    )
    assert heard.results(3) == {"answered": 1, "failed": 2}


def test_lists_of_other_lengths() -> None:
    assert compare([[]], [[]]) == ((0, 0), (0, 0))
    assert compare([["a"]], [[]]) == ((1, 1), (0, 0))
    assert compare([["a", "b"]], [["b", "a", "c"]]) == ((1, 3), (0, 2))
    assert compare([list("abcdef")], [list("abcdef")]) == ((1, 5), (1, 5))
    assert compare([["a"], ["b"]], [["a"]]) == ((2, 2), (1, 1))


def test_broken_shadows_count(
    heard: Heard, versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard.offer(versions, body=TEXT)  # which it does not take
    heard.offer(versions, body=b'{"instances": []')
    assert heard.results(2) == {"failed": 2}

    def fail(*_: object) -> Reply:
        raise RuntimeError("broken")

    monkeypatch.setattr(ShadowCopy, "answer_again", fail)
    heard.offer(versions)
    assert heard.results(3) == {"failed": 3}
    monkeypatch.undo()
    heard.offer(versions)
    assert heard.results(4) == {"failed": 3, "answered": 1}


def test_a_slow_shadow_drops_what_finds_no_place(
    versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(*_: object) -> Reply:
        begun.set()
        assert go_on.wait(60)
        return reply_of(BODY, versions.shadow)

    monkeypatch.setattr(ShadowCopy, "answer_again", slow)
    heard = Heard(shadow_time_share=1.0, shadow_queue_max=3)
    heard.offer(versions)
    assert begun.wait(60)
    heard.offer(versions, n=10)
    assert heard.results(7) == {"dropped": 7}
    go_on.set()
    assert heard.results(11) == {"dropped": 7, "answered": 4}
    heard.shadows.close()


def test_an_endless_search_is_ended_by_the_next(
    versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()

    def endless(copy: ShadowCopy, _: Limits, stop: Any) -> Reply:
        begun.set()
        wait_for(lambda: bool(stop[0]))
        return copy.answer

    monkeypatch.setattr(ShadowCopy, "answer_again", endless)
    monkeypatch.setattr(module, "SECONDS_MAX", 0.01)
    heard = Heard(shadow_time_share=1.0)
    heard.offer(versions)
    assert begun.wait(60)
    time.sleep(0.02)  # not a bound: until it is late
    heard.offer(versions)
    assert heard.results(1) == {"slow": 1}
    heard.shadows.close()


def test_long_and_late_copies_are_dropped(
    versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_bytes = len(BODY) + sum(map(len, reply_of(BODY, versions.answered).parts))
    monkeypatch.setattr(module, "BYTES_MAX", n_bytes - 1)
    heard = Heard()
    heard.offer(versions)
    assert heard.results(1) == {"dropped": 1}
    heard.shadows.close()
    heard.offer(versions)
    assert len(heard.outcomes) == 1


N_KEYS = 20_000
CHANCE = 1e-9
"""That a share lies outside its bounds if keys were drawn anew; they are not."""


def keys(seed: int) -> list[bytes]:
    rng = random.Random(seed)
    numbered = [b"user-%d" % i for i in range(N_KEYS // 2)]
    return numbered + [rng.randbytes(rng.randint(1, 40)).hex().encode() for _ in range(N_KEYS // 2)]


def log_tail(n: int, p: float, k: int) -> float:
    """The logarithm of the chance of k of n or one farther from n p, at most: Chernoff's bound."""
    q = k / n
    if q in (0.0, 1.0):
        return n * math.log(1 - p if q == 0 else p)
    return -n * (q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p)))


@pytest.mark.parametrize("part", [1, 50, 500, 1000, 5000, 9000, 9999])
def test_the_share_is_the_weight(part: int) -> None:
    for seed, version in ((1, 2), (2, 77)):
        chooser = Chooser("canary", "debtags", version, part)
        found = sum(map(chooser.takes, keys(seed)))
        assert log_tail(N_KEYS, part / PARTS, found) > math.log(CHANCE), found


def test_a_weight_that_grows_moves_no_key_back() -> None:
    taken: set[bytes] = set()
    for part in (1, 10, 500, 2000, 2001, 5000, 9999, PARTS):
        now = {key for key in keys(3) if Chooser("canary", "m", 4, part).takes(key)}
        assert taken <= now
        taken = now
    assert len(taken) == len(set(keys(3)))
    assert not any(map(Chooser("canary", "m", 4, 0).takes, keys(3)))


def test_the_points_are_those_of_every_process_and_release() -> None:
    """A replica of another release must choose alike: these never change."""
    chooser = Chooser("canary", "debtags", 4, 1000)
    found = [i for i in range(100) if chooser.takes(b"user-%d" % i)]
    assert found == [17, 26, 30, 47, 48, 50, 55, 66, 77, 86, 88, 92, 99]


def test_each_canary_has_other_users() -> None:
    whose = (("canary", "m", 4), ("canary", "m", 5), ("shadow", "m", 4), ("canary", "n", 4))
    sets = [{key for key in keys(5) if Chooser(*one, 1000).takes(key)} for one in whose]
    for i, one in enumerate(sets):
        for other in sets[:i]:
            assert 0.04 * len(one) < len(one & other) < 0.25 * len(one)


def test_what_is_not_open_answers_nothing() -> None:
    alias = Alias(1, (), TrafficShare(2, 9999), TrafficShare(3, PARTS))
    both = LiveSplit("m", alias, "two", "three")
    chosen = [both.choose("one", b"%d" % i) for i in range(100)]
    assert {served for served, _ in chosen} <= {"one", "two"}
    assert {shadow for _, shadow in chosen} == {"three"}
    one = LiveSplit("m", alias._replace(canary=None), None, "three")
    assert one.choose("one", b"any") == ("one", "three")
