"""The text of fields: weights, cells, and what is no field."""

import pytest
from hypothesis import given, strategies as st

from xylem.base.errors import BadInstance, BadParameter
from xylem.base.fields import TextColumn, TextFields

NAMES = st.text(min_size=1, max_size=5)
CELLS = st.none() | st.text(max_size=9)


@given(st.lists(st.tuples(NAMES, st.integers(1, 9), CELLS), unique_by=lambda field: field[0]))
def test_a_cell_stands_there_as_often_as_it_weighs(parts: list[tuple[str, int, str]]) -> None:
    fields = TextFields(TextColumn(name, weight) for name, weight, _ in parts)
    assert TextFields.of_options(fields.options) == fields
    expected = [cell or "" for _, weight, cell in parts for _ in range(weight)]
    assert fields.join([cell for *_, cell in parts]) == "\n".join(expected)


@given(st.lists(CELLS, min_size=1, max_size=4), st.data())
def test_a_weight_that_is_chosen_later_gives_the_same_text(
    cells: list[str | None], data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(cells) - 1))
    weight = data.draw(st.integers(1, 9))
    options = [f"f{i}={i + 1}" for i in range(len(cells))]
    options[place] = f"f{place}=auto"
    fields = TextFields.of_options(options)
    assert fields.unweighted == TextColumn(f"f{place}", 0)
    text = fields.join(cells)
    chosen = fields.with_weight(weight)
    assert chosen.unweighted is None and chosen[place].weight == weight
    assert text.weighted(weight) == chosen.join(cells)  # type: ignore[attr-defined]


def test_what_is_no_field_of_a_request() -> None:
    fields = TextFields.of_options(["title=2", "body"])
    assert fields.text({"body": "b"}) == "\n\nb"
    assert fields.text({"title": None}) == "\n\n"
    for no_fields, cells, fault in (
        (TextFields(), {"title": "a"}, "expected a text, because this model was trained without"),
        (fields, {}, "expected one of the fields title, body, found none"),
        (fields, {"titel": "a"}, "expected only title, body, found another field.*title"),
        (fields, {"title": 3}, "field 'title': expected a text, or null for none, found 3"),
    ):
        with pytest.raises(BadInstance, match=fault):
            no_fields.text(cells)


def test_what_is_no_weight() -> None:
    for options, fault in (
        (["a=auto", "b=auto"], "expected the weight auto for one column at most, .*a=auto, b=auto"),
        (["a=10"], "text column 'a': expected a weight from 1 to 9, or auto, found 10"),
        (["a=-1"], "text column 'a': expected a weight from 1 to 9, or auto, found -1"),
        (["a=1.5"], "text column 'a': expected a weight from 1 to 9, or auto, found 1.5"),
        (["a", "a=auto"], "expected distinct names"),
    ):
        with pytest.raises(BadParameter, match=fault) as caught:
            TextFields.of_options(options)
        assert caught.value.path == "text_column"
    with pytest.raises(BadParameter, match="'a': expected a weight as a number, found auto"):
        TextFields.of_options(["a=auto"]).refuse_unweighted()
