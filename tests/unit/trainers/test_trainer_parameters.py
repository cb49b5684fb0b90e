"""What trainers' parameters take, at every bound, and what they say of the rest."""

import re
from typing import Any

import pytest

from xylem.base.errors import BadParameter
from xylem.base.parameters import expected_of
from xylem.trainers import TRAINERS, parse_parameters


@pytest.mark.parametrize("name", TRAINERS)
def test_defaults_are_plain_and_every_parameter_is_described(name: str) -> None:
    parameters = parse_parameters(name, [])
    assert parameters == TRAINERS[name].parameters()
    kept = parameters.model_dump()
    assert all(type(value) in (int, float, str, bool) for value in kept.values())
    assert TRAINERS[name].parameters(**kept) == parameters
    schema = parameters.model_json_schema()
    assert schema["additionalProperties"] is False
    for field, said in schema["properties"].items():
        assert said["description"]
        assert said["default"] == kept[field]
        for kind in said.get("anyOf", [said]):
            assert not {"enum", "const"}.isdisjoint(kind) or kind.keys() >= {
                "minimum",
                "maximum",
            }, field
        assert expected_of(TRAINERS[name].parameters, field)


@pytest.mark.parametrize(
    ("key", "expected", "low", "high"),
    [
        ("trees", "an integer", 1, 100),
        ("leaf_size", "an integer", 1, 1_000_000),
        ("depth", "an integer", 1, 32),
        ("max_epochs", "an integer", 1, 100_000),
        ("cost", "a number", 0, 1e6),
        ("cost_decay", "a number", 0, 1),
        ("eps", "a number", 1e-4, 10),
        ("prune", "auto or a number", 0, 100),
    ],
)
def test_numbers_at_their_bounds(key: Any, expected: Any, low: Any, high: Any) -> None:
    for value in (low, high):
        assert getattr(parse_parameters("label-tree", [f"{key}={value}"]), key) == value
    beyond = (
        (low - 1, high + 1, "1.5", "true")
        if expected == "an integer"
        else (low - 1e-7, high * 1.01)
    )
    bounds = f"{low} to {high}" if expected == "an integer" else f"{low:g} to {high:g}"
    message = re.escape(f"{key}: expected {expected} from {bounds}, found")
    for text in (*beyond, "many", "", "nan", "inf", "-inf"):
        with pytest.raises(BadParameter, match=message):
            parse_parameters("label-tree", [f"{key}={text}"])


@pytest.mark.parametrize(
    ("name", "items", "message"),
    [
        ("svm", [], f"expected one of {', '.join(TRAINERS)}, found 'svm'"),
        ("ovr", ["leaf_size=4"], "leaf_size: expected only loss, "),
        (
            "label-tree",
            ["prune=none"],
            'prune: expected auto or a number from 0 to 100, found "none"',
        ),
        (
            "label-tree",
            ["loss=hinge"],
            'loss: expected one of squared_hinge, logistic, found "hinge"',
        ),
        (
            "label-tree",
            ["arity=100"],
            "arity: expected a power of two with clustering=balanced, found 100",
        ),
        (
            "label-tree",
            ["arity=4097", "clustering=kmeans"],
            "arity: expected .* from 2 to 4096, found 4097",
        ),
        ("plt", ["arity=3"], "arity: expected a power of two with tree=kmeans, found 3"),
        ("ldsm", ["max_nodes=4"], "max_nodes: expected 0, or more than arity, 4"),
        ("ldsm", ["arity=8", "max_nodes=8"], "max_nodes: expected 0, or more than arity, 8"),
        ("learned-tree", ["slack=0.5"], "slack: expected 0 or at least 1, found 0.5"),
    ],
)
def test_refusals_say_expected_and_found(name: str, items: Any, message: Any) -> None:
    with pytest.raises(BadParameter, match=message):
        parse_parameters(name, items)


def test_what_is_just_within_a_rule_of_two_parameters_is_taken() -> None:
    assert parse_parameters("plt", ["arity=3", "tree=random"])
    assert parse_parameters("ldsm", ["max_nodes=5"])


@pytest.mark.parametrize(
    ("items", "cost", "link"),
    [
        ([], 0.5, "hinge3"),
        (["loss=logistic"], 8.0, "logistic"),
        (["cost=3"], 3.0, "hinge3"),
        (["loss=logistic", "cost=3"], 3.0, "logistic"),
        (["link=hinge2"], 0.5, "hinge2"),
    ],
)
def test_cost_zero_suits_the_loss_and_the_link_follows_it(items: Any, cost: Any, link: str) -> None:
    parameters = parse_parameters("label-tree", items)
    assert (parameters.solving(1, 1).cost, parameters.model_link()) == (cost, link)
