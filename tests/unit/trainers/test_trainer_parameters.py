"""What trainers' parameters take, at every bound, and what they say of the rest."""

import re

import numpy as np
import pytest

from service.base.errors import BadParameter
from service.base.parameters import expected_of
from service.trainers import TRAINERS, parse_parameters
from service.trainers.label_tree import LabelTreeParameters
from tests.oracles.problems import to_rows

ROWS = to_rows(np.ones((2, 3)))
trainers = pytest.mark.parametrize("name", TRAINERS)


@trainers
def test_defaults_are_valid_and_kept_as_plain_values(name):
    parameters = parse_parameters(name, [])
    assert parameters == TRAINERS[name].parameters()
    kept = parameters.model_dump()
    assert all(type(value) in (int, float, str, bool) for value in kept.values())
    assert TRAINERS[name].parameters(**kept) == parameters


@trainers
def test_every_parameter_says_what_it_is(name):
    parameters = TRAINERS[name].parameters
    schema = parameters.model_json_schema()
    assert schema["additionalProperties"] is False
    for field, said in schema["properties"].items():
        assert said["description"]
        assert said["default"] == getattr(parameters(), field)
        for kind in said.get("anyOf", [said]):
            assert not {"enum", "const"}.isdisjoint(kind) or kind.keys() >= {"minimum", "maximum"}, field
        assert expected_of(parameters, field)


def test_values_of_a_command_line():
    parsed = parse_parameters(
        "label-tree", ["trees=3", "cost=0.5", "clustering=kmeans", "arity=100", "eps=1e-2"]
    )
    expected = LabelTreeParameters(trees=3, cost=0.5, clustering="kmeans", arity=100, eps=0.01)
    assert parsed == expected
    assert parse_parameters("label-tree", ["cost=2"]).model_dump()["cost"] == 2.0


@pytest.mark.parametrize(
    ("key", "low", "high"),
    [("trees", 1, 100), ("leaf_size", 1, 1_000_000), ("depth", 1, 32), ("max_epochs", 1, 100_000)],
)
def test_whole_numbers_at_their_bounds(key, low, high):
    for value in (low, high):
        assert getattr(parse_parameters("label-tree", [f"{key}={value}"]), key) == value
    for text in (low - 1, high + 1, "1.5", "many", "", "nan", "true"):
        with pytest.raises(BadParameter, match=f"{key}: expected an integer from {low} to {high}, found"):
            parse_parameters("label-tree", [f"{key}={text}"])


@pytest.mark.parametrize(
    ("key", "low", "high"), [("cost", 0, 1e6), ("cost_decay", 0, 1), ("eps", 1e-4, 10), ("prune", 0, 100)]
)
def test_numbers_at_their_bounds(key, low, high):
    for value in (low, high):
        assert getattr(parse_parameters("label-tree", [f"{key}={value}"]), key) == value
    also = "auto or " if key == "prune" else ""
    for text in (low - 1e-7, high * 1.01, "nan", "inf", "-inf", "x", ""):
        with pytest.raises(
            BadParameter, match=re.escape(f"{key}: expected {also}a number from {low:g} to {high:g}, found")
        ):
            parse_parameters("label-tree", [f"{key}={text}"])


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (["los=x"], "los: expected only loss, .*trees.*, found another parameter; did you mean loss?"),
        (["trees"], "expected key=value, found 'trees'"),
        (["trees=1", "trees=2"], "trees: expected once, found twice"),
        (["prune=none"], 'prune: expected auto or a number from 0 to 100, found "none"'),
        (["loss=hinge"], 'loss: expected one of squared_hinge, logistic, found "hinge"'),
        (["arity=100"], "arity: expected a power of two with clustering=balanced, found 100"),
        (["arity=4097", "clustering=kmeans"], "arity: expected an integer from 2 to 4096, found 4097"),
    ],
)
def test_refusals_say_expected_and_found(items, message):
    with pytest.raises(BadParameter, match=message):
        parse_parameters("label-tree", items)


@pytest.mark.parametrize("value", [True, 1.0, "1", None])
def test_a_whole_number_is_an_int_and_nothing_else(value):
    with pytest.raises(BadParameter, match="trees"):
        LabelTreeParameters(trees=value)


@pytest.mark.parametrize(
    ("items", "cost"),
    [([], 0.5), (["loss=logistic"], 8.0), (["cost=3"], 3.0), (["loss=logistic", "cost=3"], 3.0)],
)
def test_cost_zero_is_what_suits_the_loss(items, cost):
    assert parse_parameters("label-tree", items).solving(1, 1).cost == cost


@pytest.mark.parametrize(
    ("items", "link"), [([], "hinge3"), (["link=hinge2"], "hinge2"), (["loss=logistic"], "logistic")]
)
def test_link_follows_the_loss(items, link):
    assert parse_parameters("label-tree", items).model_link() == link


def test_unknown_trainers_and_trees_of_the_flat_baseline_are_refused():
    with pytest.raises(BadParameter, match=f"expected one of {', '.join(TRAINERS)}, found 'svm'"):
        parse_parameters("svm", [])
    with pytest.raises(BadParameter, match="leaf_size: expected only loss, "):
        parse_parameters("ovr", ["leaf_size=4"])
