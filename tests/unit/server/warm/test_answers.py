"""The model made by hand, by which kernels of answers are compiled, answers as any other."""

from xylem.base.settings import Limits
from xylem.server.warm.answers import text_model
from xylem.serving.batches.blocks import answer_block
from xylem.serving.batches.lines import LineBlock
from xylem.serving.dialects.predict.schema import Options
from xylem.serving.live.opening import serve_model
from xylem.serving.rows import to_options


def test_the_model_made_by_hand_answers() -> None:
    served = serve_model(text_model())
    block = LineBlock(1, [b'{"text":"another text"}'])
    answered = answer_block(block, served, to_options(Options(), served), Limits())
    assert (answered.n_rows, answered.n_bad) == (1, 0)
    assert b'"label":"other"' in answered.lines
