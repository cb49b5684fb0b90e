import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from xylem.base.errors import BadInput, BadRequest, LimitExceeded, UnsupportedOption
from xylem.base.settings import Limits
from xylem.serving import parse
from xylem.serving.dialects.predict.schema import Options, PredictRequest, TextLine
from xylem.serving.feedback.schema import FeedbackEvent
from xylem.serving.parse import (
    MalformedJson,
    parse_body,
    parse_feedback,
    parse_line,
    parse_options,
    validated,
)
from xylem.serving.schemas.fields import NamedInstance, SparseInstance, TextInstance

LIMITS = Limits()
TEXT = {"text": "a"}
RAW = {"indices": [3, 17], "values": [0.5, 1]}
MANY = {f"field{i}": i for i in range(100)}


def parse_predict(data: bytes, limits: Limits) -> PredictRequest:
    return parse_body(data, PredictRequest, limits)


def body(**fields: Any) -> bytes:
    return json.dumps({"instances": [TEXT], **fields}).encode()


def fault(data: bytes) -> BadInput:
    with pytest.raises(BadInput) as caught:
        parse_predict(data, LIMITS)
    return caught.value


def test_a_request_with_everything() -> None:
    options: dict[str, Any] = {"top_r": 7, "threshold": "tuned", "beam_width": 3, "deadline_ms": 20}
    options |= {"allow_labels": ["a"], "deny_labels": [], "label_weights": {"a": 2, "b": 0.5}}
    options |= {"exact": True, "explain": True, "statistics": True}
    data = body(instances=[{"text": "é"}, RAW, {"features": {"w": 0.5, "v": 2}}], **options)
    instances = [
        TextInstance(text="é"),
        SparseInstance(indices=[3, 17], values=[0.5, 1]),
        NamedInstance(features={"w": 0.5, "v": 2}),
    ]
    assert parse_predict(data, LIMITS) == PredictRequest(instances=instances, **options)


def test_defaults() -> None:
    found = parse_predict(body(), LIMITS)
    assert found.instances == [TextInstance(text="a")]
    assert (found.top_r, found.threshold, found.beam_width, found.exact) == (5, None, 10, False)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"nope",
        b'{"instances": [{"text": NaN}]}',
        b'{"instances": [{"indices": [1], "values": [Infinity]}]}',
        b'{"instances": [{"indices": [1], "values": [1e400]}]}',
        b'{"instances": [{"text": "\\ud800"}]}',
        b'{"instances": [{"text": "\xff"}]}',
        b'{"instances": [{"text": "\xed\xa0\x80"}]}',
        b'{"instances": [{"text": "a"}]} trailing',
        b"[" * 60_000,
        b'{"a":' * 2000 + b"1" + b"}" * 2000,
    ],
)
def test_what_is_not_json(data: bytes) -> None:
    assert isinstance(fault(data), MalformedJson)


@pytest.mark.parametrize(
    ("data", "path", "says"),
    [
        (b"[]", "", "an object, found an array of 0"),
        (b"null", "", "an object, found null"),
        (b"{}", "instances", "found none"),
        (body(instances=[]), "instances", "at least one"),
        (body(instances={}), "instances", "an array"),
        (body(instances=["a"]), "instances[0]", 'found "a"'),
        (body(instances=[["text"]]), "instances[0]", "an object, found an array of 1"),
        (body(instances=[None]), "instances[0]", "an object, found null"),
        (body(instances=[TEXT, {}]), "instances[1]", "none of them"),
        (body(instances=[{**TEXT, "id": 1}]), "instances[0].id", "another field"),
        (body(instances=[{**TEXT, "Text": "a"}]), "instances[0].Text", "another field"),
        (body(instances=[RAW, {**TEXT, **MANY}]), "instances[1]", "at most 100 fields, found 101"),
        (body(**MANY), "", "at most 100 fields, found 101"),
        (body(instances=[{"text": 1}]), "instances[0].text", "a string, found 1"),
        (body(instances=[{"text": None}]), "instances[0].text", "found null"),
        (
            body(instances=[{"indices": [True], "values": [1]}]),
            "instances[0].indices[0]",
            "found true",
        ),
        (
            body(instances=[RAW, {"indices": [0, "1"], "values": [1, 1]}]),
            "instances[1].indices[1]",
            '"1"',
        ),
        (
            body(instances=[{"indices": [1.0], "values": [1]}]),
            "instances[0].indices[0]",
            "found 1.0",
        ),
        (body(instances=[{"indices": [[]], "values": [1]}]), "instances[0].indices[0]", "an array"),
        (
            body(instances=[{"indices": [1], "values": [False]}]),
            "instances[0].values[0]",
            "found false",
        ),
        (
            body(instances=[{"indices": [1], "values": [None]}]),
            "instances[0].values[0]",
            "found null",
        ),
        (body(instances=[{"indices": [1], "values": []}]), "instances[0].values", "as many"),
        (body(instances=[{"indices": [], "values": [1]}]), "instances[0].values", "as many"),
        (body(instances=[{"indices": 1, "values": []}]), "instances[0].indices", "an array"),
        (body(instances=[{"features": []}]), "instances[0].features", "an object"),
        (body(instances=[{"features": {"a": "1"}}]), "instances[0].features.a", 'found "1"'),
        (body(instances=[{"features": {"a": True}}]), "instances[0].features.a", "found true"),
        (body(topr=5), "topr", "another field"),
        (body(top_r=0), "top_r", "at least 1"),
        (body(top_r=-3), "top_r", "at least 1"),
        (body(top_r=True), "top_r", "an integer"),
        (body(top_r="5"), "top_r", "an integer"),
        (body(top_r=5.0), "top_r", "an integer"),
        (body(top_r=None), "top_r", "an integer"),
        (body(beam_width=0), "beam_width", "at least 1"),
        (body(exact=1), "exact", "true or false"),
        (body(threshold="best"), "threshold", "tuned"),
        (body(threshold=True), "threshold", "found true"),
        (body(threshold=1.5), "threshold", "from 0 to 1"),
        (body(threshold=-0.1), "threshold", "from 0 to 1"),
        (body(threshold=[]), "threshold", "an array"),
        (body(allow_labels="a"), "allow_labels", "an array"),
        (body(allow_labels=["a", 1]), "allow_labels[1]", "a string"),
        (body(deny_labels={}), "deny_labels", "an array"),
        (body(deadline_ms=0), "deadline_ms", "at least 1, found 0"),
        (body(deadline_ms=-1), "deadline_ms", "found -1"),
        (body(deadline_ms=True), "deadline_ms", "found true"),
        (body(deadline_ms=5.0), "deadline_ms", "found 5.0"),
        (body(deadline_ms="5"), "deadline_ms", 'found "5"'),
        (body(explain=1), "explain", "true or false, found 1"),
        (body(explain=None), "explain", "true or false, found null"),
    ],
)
def test_a_wrong_field_is_named_by_its_path(data: bytes, path: str, says: str) -> None:
    error = fault(data)
    assert isinstance(error, BadRequest)
    assert (error.path or "") == path
    assert says in str(error)


def letters(n: int) -> str:
    """A text of n bytes, with two letters of two bytes each."""
    return "éé" + "y" * (n - 4)


def sparse(n: int) -> dict[str, Any]:
    return {"indices": [1] * n, "values": [1] * n}


def one_of_each(n: int) -> dict[str, Any]:
    return {"instances": [TEXT] * n, "top_r": 1}


def named(names: Iterable[str]) -> dict[str, Any]:
    return {"instances": [{"features": dict.fromkeys(names, 1)}]}


def of_predict(
    most: int, limit: str, path: str, make: Callable[[int], dict[str, Any]]
) -> tuple[Any, ...]:
    return parse_predict, most, limit, path, lambda n: body(**make(n))


def of_event(limit: str, path: str, make: Callable[[int], dict[str, Any]]) -> tuple[Any, ...]:
    def read(value: dict[str, Any], limits: Limits) -> FeedbackEvent:
        return validated(value, FeedbackEvent, limits)

    return read, 6, limit, path, lambda n: {**EVENT, **make(n)}


EVENT = {"event_id": "1", "instance": RAW, "labels": []}


@pytest.mark.parametrize(
    ("read", "most", "limit", "path", "make"),
    [
        of_predict(3, "instances_max", "instances", lambda n: {"instances": [TEXT] * n}),
        of_predict(3, "features_max", "instances[0].indices", lambda n: {"instances": [sparse(n)]}),
        of_predict(3, "features_max", "instances[0].features", lambda n: named(map(str, range(n)))),
        of_predict(
            8, "text_bytes_max", "instances[0].text", lambda n: {"instances": [{"text": "x" * n}]}
        ),
        of_predict(
            8,
            "text_bytes_max",
            "instances[0].text",
            lambda n: {"instances": [{"text": letters(n)}]},
        ),
        of_predict(4, "name_bytes_max", "instances[0].features", lambda n: named(["x" * n])),
        of_predict(4, "name_bytes_max", "allow_labels", lambda n: {"allow_labels": ["x" * n]}),
        of_predict(9, "top_r_max", "top_r", lambda n: {"top_r": n}),
        of_predict(9, "beam_width_max", "beam_width", lambda n: {"beam_width": n}),
        of_predict(2, "label_list_max", "allow_labels", lambda n: {"allow_labels": ["a"] * n}),
        of_predict(2, "label_list_max", "deny_labels", lambda n: {"deny_labels": ["a"] * n}),
        of_predict(8, "answer_labels_max", "top_r", lambda n: {"top_r": n}),
        of_predict(10, "answer_labels_max", "top_r", one_of_each),
        of_predict(
            10, "explained_labels_max", "explain", lambda n: one_of_each(n) | {"explain": True}
        ),
        of_event("event_id_bytes_max", "event_id", lambda n: {"event_id": letters(n)}),
        of_event("label_list_max", "labels", lambda n: {"labels": ["a"] * n}),
        of_event("name_bytes_max", "labels", lambda n: {"labels": ["x" * n]}),
        of_event("features_max", "instance.indices", lambda n: {"instance": sparse(n)}),
        of_event("text_bytes_max", "instance.text", lambda n: {"instance": {"text": "x" * n}}),
        (
            parse_feedback,
            3,
            "events_max",
            "events",
            lambda n: json.dumps({"events": [EVENT] * n}).encode(),
        ),
    ],
)
def test_each_limit_at_n_and_one_more(
    read: Any, most: int, limit: str, path: str, make: Any
) -> None:
    limits = LIMITS.model_copy(update={"top_r_max": 1000, limit: most})
    read(make(most), limits)
    with pytest.raises(
        LimitExceeded, match=f"at most {most} .*limit {limit}.*, found {most + 1}"
    ) as refused:
        read(make(most + 1), limits)
    assert refused.value.path == path


def test_items_of_long_bodies_are_counted_before_they_are_read() -> None:
    limits = Limits(features_max=60_000, instances_max=40_000)
    for read in (parse_predict, parse_feedback, parse_line):
        with pytest.raises(BadInput) as refused:
            read(b'{"instances":[' + b",".join([b"1"] * 60_001) + b"]}", limits)
        assert refused.value.code == "limit-exceeded"
        assert "at most 60000 items" in str(refused.value)
    with pytest.raises(LimitExceeded, match="instances_max"):
        parse_predict(b'{"instances":[' + b",".join([b"1"] * 60_000) + b"]}", limits)
    with pytest.raises(LimitExceeded, match="at most 321000 arrays and objects, found 324002"):
        parse_predict(b'{"instances":[' + b",".join([b"[" * 9 + b"]" * 9] * 36_000) + b"]}", limits)
    with pytest.raises(LimitExceeded, match="at most 1000 fields in the outer object, found 60000"):
        parse_predict(json.dumps({f"field{i}": 1 for i in range(60_000)}).encode(), limits)
    with pytest.raises(
        LimitExceeded, match="at most 16 arrays and objects within each other, found 1024"
    ):
        parse_predict(b"[" * 100_000, limits)
    with pytest.raises(LimitExceeded, match="at most 1048576 bytes in a string, found 1048577"):
        parse_predict(json.dumps({"instances": [{"text": "a" * 1_048_577}]}).encode(), limits)
    long = {"indices": [1] * 60_000, "values": [1] * 60_000}
    assert parse_predict(json.dumps({"instances": [long]}).encode(), limits).instances


def test_instances_times_top_r_are_limited_if_explained() -> None:
    limits = LIMITS.model_copy(update={"explained_labels_max": 10})
    parse_predict(body(instances=[TEXT] * 2, top_r=5, explain=True), limits)
    parse_predict(body(instances=[TEXT] * 11, top_r=1), limits)


@pytest.mark.parametrize(
    ("weights", "path", "message"),
    [
        ("rare", "label_weights", 'null, "propensity" or an object, found "rare"'),
        ({"a": 0}, "label_weights.a", "a number from 1e-06 to 1e+06, found 0"),
        ({"a": 1e7}, "label_weights.a", "a number from 1e-06 to 1e+06, found 10000000.0"),
        ({"a": True}, "label_weights.a", "a number from 1e-06 to 1e+06, found true"),
    ],
)
def test_weights_of_labels_are_numbers_within_bounds(
    weights: object, path: str, message: str
) -> None:
    error = fault(body(label_weights=weights))
    assert (error.path, str(error)) == (path, f"expected {message}")


def test_a_deadline_is_at_most_the_limit_of_a_request() -> None:
    limits = LIMITS.model_copy(update={"request_seconds_max": 2.5})
    assert parse_predict(body(deadline_ms=2500), limits).deadline_ms == 2500
    with pytest.raises(LimitExceeded, match="limit request_seconds_max") as refused:
        parse_predict(body(deadline_ms=2501), limits)
    assert refused.value.path == "deadline_ms"


@pytest.mark.parametrize("option", ["statistics=true", "deadline_ms=5"])
def test_what_a_batch_does_not_have(option: str) -> None:
    with pytest.raises(UnsupportedOption, match="only predict has") as caught:
        parse_options(option.encode(), LIMITS)
    assert caught.value.path == option.partition("=")[0]


def test_a_huge_integer_is_still_an_index_here() -> None:
    data = b'{"instances": [{"indices": [18446744073709551615], "values": [1]}]}'
    assert parse_predict(data, LIMITS).instances == [
        SparseInstance(indices=[(1 << 64) - 1], values=[1])
    ]


@pytest.mark.parametrize("identity", ["x", 7, None])
def test_a_line_has_an_identity_and_its_labels_are_ignored(identity: str | int | None) -> None:
    line = {"id": identity, "text": "a", "labels": ["a", 3, None]}
    assert parse_line(json.dumps(line).encode(), LIMITS) == TextLine(**line)
    more_fields = {"document_id": "7", "metadata": {"a": [1]}, "subjects": [], "title": None}
    for instance in (line, {"features": {"a": 1}}, {"indices": [1], "values": [2]}):
        assert parse_line(json.dumps({**instance, **more_fields}).encode(), LIMITS) == parse_line(
            json.dumps(instance).encode(), LIMITS
        )
    with pytest.raises(BadRequest, match="at most 100 fields, found"):
        parse_line(json.dumps({**line, **MANY}).encode(), LIMITS)


@pytest.mark.parametrize(
    ("line", "path", "says"),
    [
        *(
            ({"id": identity, **TEXT}, "id", "a string or an integer")
            for identity in (True, 1.5, [], {})
        ),
        ({"indices": [True], "values": [1]}, "indices[0]", "found true"),
    ],
)
def test_paths_within_a_line(line: dict[str, Any], path: str, says: str) -> None:
    with pytest.raises(BadRequest, match=says) as caught:
        parse_line(json.dumps(line).encode(), LIMITS)
    assert caught.value.path == path


@pytest.mark.parametrize(
    "query", [b"label_info", b"label_info=", b"label%5Finfo=maybe", b"x=1&label_info"]
)
def test_an_option_without_its_value_is_refused_as_in_a_batch(query: bytes) -> None:
    for read in (
        lambda: parse.parse_predict_and_query(body(), query, LIMITS),
        lambda: parse_options(query, LIMITS),
    ):
        with pytest.raises(BadRequest) as caught:
            read()
        assert caught.value.path in ("label_info", "x")


def test_options_of_predict_in_a_query_string() -> None:
    for query in (b"label_info=true&more", b"=&label%5Finfo=true&%ff", b"x=%ff&label_info=true"):
        assert parse.parse_predict_and_query(body(), query, LIMITS).label_info


@pytest.mark.parametrize("query", [b"top_r=3", b"language=fi&top%5Fr=3", b"threshold"])
def test_an_option_of_the_body_is_refused_in_a_query_string(query: bytes) -> None:
    with pytest.raises(BadRequest, match="other options in the body"):
        parse.parse_predict_and_query(body(), query, LIMITS)


def test_options_of_a_query_string() -> None:
    query = b"top_r=3&threshold=0.25&beam_width=2&exact=true&allow_labels=a&allow_labels=b%20c&deny_labels="  # noqa: E501
    assert parse_options(query, LIMITS) == Options(
        top_r=3,
        threshold=0.25,
        beam_width=2,
        exact=True,
        allow_labels=["a", "b c"],
        deny_labels=[""],
    )
    assert parse_options(b"threshold=tuned", LIMITS).threshold == "tuned"
    assert parse_options(b"threshold=null&explain=false", LIMITS) == Options()
    assert parse_options(b"", LIMITS) == Options()


@pytest.mark.parametrize(
    ("query", "path"),
    [
        (b"topr=3", "topr"),
        (b"instances=3", "instances"),
        (b"top_r=3&top_r=4", "top_r"),
        (b"top_r=", "top_r"),
        (b'top_r="3"', "top_r"),
        (b"top_r=1e2", "top_r"),
        (b"exact=yes", "exact"),
        (b"threshold=NaN", "threshold"),
        (b"threshold=2", "threshold"),
        (b"allow_labels=%ff", None),
        (b"\xff=1", None),
    ],
)
def test_a_wrong_query_string(query: bytes, path: str | None) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_options(query, LIMITS)
    assert caught.value.path == path
