"""A request of tensors is answered at once, and each of its stages is counted once."""

import json
from pathlib import Path

import pytest
from tests.helpers.oip_requests import HEADER, binary_body, csr

from xylem.base.settings import Limits
from xylem.base.stages import FEATURES, QUEUE, READ, SEARCH, WRITE, StageTimes, StageTimings
from xylem.serving.dialects.dialect import Body, Reply
from xylem.serving.dialects.tensors.dialect import TENSORS
from xylem.serving.live.opening import serve_model
from xylem_store.store import Store


@pytest.mark.parametrize("is_binary", [False, True])
def test_each_stage_is_counted_once(shared_store: Path, is_binary: bool) -> None:
    stages = StageTimes()
    served = serve_model(Store(shared_store).open("raw"), stages=stages)
    before = [sum(counts) for _, counts, _ in stages.figures()]
    request = {"inputs": csr([{"indices": [1, 5], "values": [1.0, -0.5]}])}
    body = Body(json.dumps(request).encode())
    if is_binary:
        content, headers = binary_body(request)
        body = Body(content, 0, headers[HEADER])
    timings = StageTimings()
    assert isinstance(TENSORS.answer(body, served, Limits(), timings), Reply)
    stages.count(timings)
    counted = [sum(counts) - n for (_, counts, _), n in zip(stages.figures(), before, strict=True)]
    assert [counted[stage] for stage in (READ, SEARCH, WRITE)] == [1, 1, 1]
    assert [counted[stage] for stage in (FEATURES, QUEUE)] == [0, 0]
