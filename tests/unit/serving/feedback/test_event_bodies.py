"""Whatever kernels (`serving/kernels`) take for plain events is
what the general way makes of them.
"""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.helpers.bodies import BYTES_MAX, featurizer_of, instances, texts
from tests.helpers.feedback_helpers import signed
from tests.helpers.oip_requests import changed

from xylem.base.errors import BadInput
from xylem.base.settings import Limits
from xylem.serving.feedback.events import CheckedEvent, check_event, read_sparse, to_events
from xylem.serving.feedback.tokens import Tokens
from xylem.serving.live.served import ServedVersion
from xylem.serving.parse import parse_feedback, parse_json
from xylem.thresholds.live.events import Events
from xylem_store.names import build_names

NAMES = ["a", "label::3", "ä", "x y", "{", "an \\ escape"]
LENGTHS = {"name_bytes_max": 12, "event_id_bytes_max": 8, "text_bytes_max": BYTES_MAX}
LIMITS = Limits(events_max=4, label_list_max=5, features_max=6, **LENGTHS)
TOKENS = Tokens([b"key"], 1_000_000)
TEXTS = "words"
"""A model of texts; the other kinds are norms of sparse rows."""


def served_of(kind: str) -> ServedVersion:
    parts: dict[str, Any] = dict.fromkeys(ServedVersion._fields)
    parts |= {
        "name": "m",
        "version": 2,
        "featurizer": featurizer_of(kind),
        "labels": build_names(NAMES),
    }
    return ServedVersion(**parts)


SERVED = {kind: served_of(kind) for kind in ("l2", "none", TEXTS)}


def token(version: int = 2, labels: tuple[int, ...] = (0, 4), model: str = "m") -> str:
    return signed(TOKENS, model, version, 7, labels)


def generally(
    body: bytes, served: ServedVersion, are_lines: bool
) -> tuple[list[str], Events] | None:
    """Return the events; None if any is at fault."""
    try:
        if are_lines:
            values = [parse_json(line, LIMITS) for line in body.split(b"\n")]
        else:
            values = parse_feedback(body, LIMITS)
    except BadInput:
        return None
    checked = dict(enumerate(check_event(value, "m", TOKENS, LIMITS) for value in values))
    right = {place: one for place, one in checked.items() if isinstance(one, CheckedEvent)}
    ids, events, _ = to_events(right, served)
    return (list(ids.values()), events) if len(ids) == len(checked) else None


def plainly(
    body: bytes, kind: str = "l2", are_lines: bool = False
) -> tuple[list[str], Events] | None:
    return read_sparse(body, SERVED[kind], TOKENS, LIMITS, are_lines=are_lines)


def is_the_same(body: bytes, kind: str = "l2", are_lines: bool = False) -> bool:
    """Compare the two; return whether the kernel took the body."""
    found = plainly(body, kind, are_lines)
    if found is None:
        return False
    expected = generally(body, SERVED[kind], are_lines)
    assert expected is not None, body
    (ids, mine), (expected_ids, other) = found, expected
    assert ids == expected_ids
    assert mine.keys == other.keys
    assert mine.epochs.tolist() == other.epochs.tolist()
    for some, others in zip(mine[1:4], other[1:4], strict=True):
        for a, b in zip(some, others, strict=True):
            if isinstance(a, np.ndarray):
                assert (a.dtype, a.tobytes()) == (b.dtype, b.tobytes())
            else:
                assert a == b
    return True


ids = st.text('abc019-_:"\\ä\u20ac ', max_size=9)
labels = st.lists(st.sampled_from([*NAMES, "unknown", "A", ""]), max_size=6)
tokens = st.sampled_from(
    [token(), token(1), token(2, (9,)), token(model="n"), token()[:-1], "", "no token"]
)
with_texts = texts.map(lambda text: {"text": text}) | instances
EVENTS = {
    kind: st.fixed_dictionaries(
        {"event_id": ids, "labels": labels},
        optional={"instance": given_instances, "prediction_id": tokens, "more": st.none()},
    )
    for kind, given_instances in (("l2", instances), ("none", instances), (TEXTS, with_texts))
}


@settings(max_examples=600)
@given(st.sampled_from(sorted(EVENTS)), st.data(), st.booleans(), st.booleans(), st.booleans())
def test_events_become_what_the_general_way_makes_of_them(
    kind: str, data: st.DataObject, tight: bool, is_sorted: bool, is_ascii: bool
) -> None:
    some = data.draw(st.lists(EVENTS[kind], max_size=5))
    style = {
        "separators": (",", ":") if tight else None,
        "sort_keys": is_sorted,
        "ensure_ascii": is_ascii,
    }
    written = [json.dumps(one, **style).encode(errors="surrogatepass") for one in some]
    is_the_same(b'{"events": [' + b", ".join(written) + b"]}", kind)
    is_the_same(b"\n".join(written), kind, are_lines=True)
    for one in written[:1]:
        is_the_same(one, kind)


_EVENT = '{"event_id":"1","instance":{"indices":[3,17],"values":[0.5,1]},"labels":["a","x y"]}'
_TOKEN = token()
_BY_TOKEN = f'{{"event_id": "2", "labels": [], "prediction_id": "{_TOKEN}"}}'


def test_what_clients_write_is_plain() -> None:
    """Or the test above compares nothing."""
    for body in (
        _EVENT,
        _BY_TOKEN,
        f'{{"events":[{_EVENT}]}}',
        _EVENT[:-1] + ',"event_id":"2"}',
        _EVENT.replace('"x y"', '"x\\u0020y"').replace('"1"', '"\u00e9"'),
        f' {{ "events" : [ {_EVENT} , {_BY_TOKEN} ] }} ',
        '{"labels": ["\u00e4", "{", "\u00e4"], "instance": {"indices": [], "values": []}, '
        '"event_id": "x y"}',
        f'{{"events":[{",".join([_EVENT] * 4)}]}}',  # each limit
        _EVENT.replace('"1"', '"12345678"'),
        _EVENT.replace('"a"', '"a","a","a","a"'),
        _EVENT.replace("[3,17]", "[1,2,3,4,5,6]").replace("[0.5,1]", "[1,2,3,4,5,6]"),
    ):
        assert is_the_same(body.encode()), body
    assert is_the_same(f"{_EVENT}\r\n{_BY_TOKEN}\n {_EVENT} ".encode(), are_lines=True)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{}",
        '{"events":[]}',
        '{"events":[{}]}',
        f'{{"events":[{_EVENT},]}}',
        f'{{"events":[{_EVENT}],}}',
        f'{{"events":[{_EVENT}]}} x',
        f'{{"events":[{_EVENT}]}}{_EVENT}',
        f'{{"events":[{",".join([_EVENT] * 5)}]}}',
        f"{_EVENT},{_EVENT}",
        f"[{_EVENT}]",
        _EVENT[:-1] + f',"prediction_id":"{_TOKEN}"}}',
        _EVENT.replace('"event_id":"1",', ""),
        _EVENT.replace(',"labels":["a","x y"]', ""),
        _EVENT.replace('"1"', '""'),
        _EVENT.replace('"1"', '"123456789"'),
        _EVENT.replace('"1"', "1"),
        _EVENT.replace('"x y"', '"unknown"'),
        _EVENT.replace('"a"', '"a","a","a","a","a"'),
        _EVENT.replace("[3,17]", "[3,40]"),
        _EVENT.replace("[3,17]", "[3]"),
        _EVENT.replace("[3,17]", "[1,2,3,4,5,6,7]").replace("[0.5,1]", "[1,2,3,4,5,6,7]"),
        _EVENT.replace("0.5", "1e40"),
        _EVENT.replace("[3,17]", "[3,3]").replace("[0.5,1]", "[3e38,3e38]"),
        _BY_TOKEN.replace(_TOKEN, token(3)),
        _BY_TOKEN.replace(_TOKEN, token(2, (6,))),
        _BY_TOKEN.replace(_TOKEN, _TOKEN[:-4]),
    ],
)
def test_what_is_not_plain_is_left_to_the_general_way(body: str) -> None:
    assert plainly(body.encode()) is None


def test_an_event_is_not_made_of_two_lines() -> None:
    first, second = _EVENT.split('"instance"')
    assert (
        plainly(f'{first}\n"instance"{second}\n{_EVENT},{_EVENT}'.encode(), are_lines=True) is None
    )
    assert plainly(f"{_EVENT}\n\n{_EVENT}".encode(), are_lines=True) is None
    assert plainly(f"{_EVENT}\n".encode(), are_lines=True) is None


@settings(max_examples=300)
@given(st.data())
def test_no_damage_is_read_otherwise(data: st.DataObject) -> None:
    good = data.draw(st.sampled_from([f'{{"events":[{_EVENT}]}}', _BY_TOKEN, _EVENT]))
    is_the_same(changed(data, good.encode(), None, b'",]}\\\n\0\xff9{ ')[0])


def event_of(instance: bytes) -> bytes:
    return b'{"event_id":"1","instance":' + instance + b',"labels":["a"]}'


def test_texts_that_are_taken_and_those_that_are_not() -> None:
    """Those beside a sparse instance are for the general way, and so are longer ones."""
    debug, empty = b'{"text":"debug"}', b'{"text":""}'
    longest, too_long = (b'{"text":"' + b"x" * n + b'"}' for n in (BYTES_MAX, BYTES_MAX + 1))
    for instance in (debug, empty, longest):
        assert is_the_same(event_of(instance), TEXTS), instance
    for instance in (too_long, '{"text":"e\u0301"}'.encode(), b'{"text":"a","id":1}', b"{}"):
        assert not is_the_same(event_of(instance), TEXTS), instance
    for instance in (debug, empty):
        assert not is_the_same(event_of(instance), "l2"), "the model takes no texts"
    by_token, sparse = _BY_TOKEN.encode(), event_of(b'{"indices":[3],"values":[1]}')
    for lines, is_taken in (
        ([event_of(debug), event_of(longest)], True),
        ([by_token, event_of(debug), by_token], True),
        ([event_of(debug), sparse], False),
    ):
        assert is_the_same(b"\n".join(lines), TEXTS, are_lines=True) == is_taken, lines
