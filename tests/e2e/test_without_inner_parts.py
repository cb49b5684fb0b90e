"""A service whose numba lacks every inner part: it trains, starts and answers as one that has them."""

from pathlib import Path

import pytest

from model_store.compiled import inner_parts
from model_store.store import Store
from service.workflows.train import TrainRequest, train_and_publish
from tests.hidden_parts import IMPORT_WITHOUT
from tests.servers import ServerProcess

_BEFORE = """
import sys
from pathlib import Path
{hide}
import_without({parts})
from model_store.store import Store
from service.workflows.train import TrainRequest, train_and_publish
train_and_publish(Store(Path(sys.argv[1])), "hidden", TrainRequest(trainer="label-tree", data=Path({data!r})))
"""

_SECONDS = 1800
"""It compiles for three minutes, if it is alone."""

_BODY = {"instances": [{"indices": [2, 11], "values": [1.0, 0.5]}], "top_r": 5}


@pytest.mark.soak
@pytest.mark.timeout(2 * _SECONDS)
def test_it_trains_starts_and_answers(tmp_path: Path) -> None:
    data = tmp_path / "train.svm"
    data.write_text("".join(f"{row % 9} {row % 9}:1 {9 + row % 4}:0.5\n" for row in range(60)))
    train_and_publish(Store(tmp_path), "whole", TrainRequest(trainer="label-tree", data=data))
    options = (f"numba.core.options:DefaultOptions.{name}" for name in inner_parts.OPTIONS)
    parts = ", ".join(map(repr, (*inner_parts.PARTS, *options)))
    before = _BEFORE.format(hide=IMPORT_WITHOUT, parts=parts, data=str(data))
    with ServerProcess(tmp_path, before=before, start_seconds=_SECONDS) as server:
        answers = [server.ask("POST", f"/v1/models/{model}/predict", _BODY) for model in ("whole", "hidden")]
        assert [status for status, _ in answers] == [200, 200]
        whole, hidden = (answer["predictions"][0]["labels"] for _, answer in answers)
        assert whole == hidden
        assert len(whole) == 5
        assert server.log().count("kernels are slower, and compiled at each start: numba") == 1
