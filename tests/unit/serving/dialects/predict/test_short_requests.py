"""Requests that are answered from their bytes get what the general way answers."""

import json
from typing import Any

from tests.conftest import serving, settings_of, whole_request
from tests.helpers.served_models import publish_model

from xylem_store.store import Store

RAW = {"indices": [33, 1, 5], "values": [-2.0, 1.0, 0.5]}
SHORT = [
    ("raw", {"instances": [RAW, RAW], "top_r": 3}),
    ("hashed", {"instances": [{"text": 'chess and "quotes"'}, RAW], "top_r": 4}),
    ("text", {"instances": [{"text": "Schach für émigrés"}], "beam_width": 2}),
    ("named", {"instances": [{"features": {"red": 1.0, "nobody": 2}}], "statistics": True}),
    ("raw", {"instances": [RAW], "allow_labels": ["label::1", "label::2"]}),
    ("raw", {"instances": [RAW], "explain": True}),
    (
        "text",
        {
            "instances": [{"text": "chess"}],
            "explain": True,
            "allow_labels": ["label::1"],
            "top_r": 2,
        },
    ),
    ("tree", {"instances": [{"text": "chess"}], "exact": True, "beam_width": 60}),
    ("tree", {"instances": [{"text": "chess"}], "threshold": 0, "beam_width": 60}),
    ("tree", {"instances": [{"text": "chess"}], "threshold": 1}),
]
REFUSED: list[tuple[str, Any]] = [
    ("raw", {"instances": [RAW], "allow_labels": ["nobody"]}),
    ("text", {"instances": [{"text": 3}]}),
    ("text", {"instances": [{"text": "chess"}], "top": 3}),
    ("raw", {"instances": [{"text": "chess"}]}),
    ("text", {"instances": [{"text": "chess"}], "threshold": "tuned"}),
    ("raw", []),
]
LONG = [
    ("text", {"instances": [{"text": "chess " * 2000}]}),
    ("text", {"instances": [{"text": "chess" + " " * 100_000}]}),
    ("raw", {"instances": [RAW] * 9, "explain": True}),
    ("text", {"instances": [{"text": "chess " * 200}], "explain": True}),
    ("tree", {"instances": [{"text": "chess"}], "threshold": 0.01, "statistics": True}),
    ("tree", {"instances": [{"text": "chess"}], "exact": True, "beam_width": 1}),
    ("text", {"instances": [{"text": "chess"}], "exact": True}),
]


def told(status: int, content_type: str, answer: dict[str, Any]) -> Any:
    """What does not differ from request to request."""
    answer.pop("request_id", None)
    for prediction in answer.get("predictions", ()):
        del prediction["prediction_id"]
    return status, content_type, answer


def parsed(answer: bytes) -> tuple[int, dict[str, str], Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return int(status.split()[1]), dict(line.split(": ", 1) for line in lines), json.loads(body)


async def test_short_requests_get_the_general_answer_long_ones_none(own_store: Store) -> None:
    publish_model(own_store, "tree", "tfidf", seed=6, n_labels=60, n_trees=1)
    async with serving(settings_of(own_store.root)) as (app, client):
        plain = app.state.whole_requests
        for model, asked in SHORT + REFUSED + LONG:
            path, body = f"/v1/models/{model}/predict", json.dumps(asked).encode()
            general = await client.post(
                path, content=body, headers={"content-type": "application/json"}
            )
            message, scope = whole_request(path, body)
            assert plain.answer(message, b"") is None
            plain.learn(message, scope)
            found = plain.answer(message, b"")
            if (model, asked) in LONG:
                assert found is None, asked
                continue
            status, headers, answer = parsed(found)
            assert int(headers["content-length"]) == len(found.partition(b"\r\n\r\n")[2])
            assert (status == 200) == ((model, asked) in SHORT)
            expected = told(general.status_code, general.headers["content-type"], general.json())
            assert told(status, headers["content-type"], answer) == expected, asked
