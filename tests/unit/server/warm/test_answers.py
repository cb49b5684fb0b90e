"""The model made by hand, by which kernels of answers are compiled, answers as any other."""

from xylem.base.settings import Limits
from xylem.server.warm.answers import text_model
from xylem.serving.blocks import answer_block
from xylem.serving.lines import LineBlock
from xylem.serving.opening import serve_model
from xylem.serving.rows import to_options
from xylem.serving.schemas.predict import Options


def test_the_model_made_by_hand_answers() -> None:
    served = serve_model(text_model())
    block = LineBlock(1, [b'{"text":"another text"}'])
    answered = answer_block(block, served, to_options(Options(), served), Limits())
    assert (answered.n_rows, answered.n_bad) == (1, 0)
    assert b'"label":"other"' in answered.lines
