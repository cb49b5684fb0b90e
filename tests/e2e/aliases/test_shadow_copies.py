"""A shadow answers copies of requests, which no client sees."""

import itertools
import json
import re
from typing import Any

from tests.helpers.alias_requests import AS_A_ROUTE, ROW, Connect, figures, put
from tests.helpers.oip_requests import binary_body, csr
from tests.helpers.servers import ServerProcess, wait_for


def test_a_shadow_answers_too_and_is_never_returned(here: ServerProcess, connect: Connect) -> None:
    connection = connect(here)
    plain = connection.answer()["predictions"][0]["labels"]
    put(here, "shadow", version=3)
    counted = r'xylem_shadow_version_requests_total\{model="raw",result="(\w+)",version="3"\} (\S+)'
    n = 60
    for i in range(n):
        answer = connection.answer(**(AS_A_ROUTE if i % 3 == 0 else {}))
        assert (answer["version"], answer["predictions"][0]["labels"]) == (1, plain)
    wait_for(lambda: sum(figures(here, counted).values()) >= n)
    assert figures(here, counted) == {("answered",): n}
    labels = r'\{answered="1",model="raw",top="(\d)",version="3"\} (\S+)'
    found = figures(here, rf"xylem_shadow_version_(compared|agreed)_total{labels}")
    assert (found["compared", "1"], found["compared", "5"]) == (n, 5 * n)
    assert found["agreed", "5"] < 5 * n
    requests = (
        r'xylem_requests_total\{model="raw",route="[^"]*",status="200",version="(\d)"\} (\S+)'
    )
    assert ("3",) not in figures(here, requests)  # whose answers no request got
    parts = r'xylem_alias_part\{alias="latest",model="raw",role="(\w+)",version="(\d)"\} (\S+)'
    assert figures(here, parts) == {("stable", "1"): 1.0, ("shadow", "3"): 1.0}
    put(here, "shadow", version=3, share=0.0001)
    for _ in range(20):
        connection.answer()
    assert sum(figures(here, counted).values()) <= n + 3


def test_a_shadow_hears_of_tensors_too(here: ServerProcess, connect: Connect) -> None:
    """In JSON and as binary data, of heads that are new and remembered, and on the route."""
    put(here, "shadow", version=2)
    counted = (
        r'xylem_shadow_version_requests_total\{model="raw",result="answered",version="2"\} (\S+)'
    )
    labels = r'\{answered="1",model="raw",top="5",version="2"\} (\S+)'
    patterns = [
        counted,
        *(rf"xylem_shadow_version_{what}_total{labels}" for what in ("agreed", "compared")),
    ]

    def heard() -> list[float]:
        return [figures(here, pattern).get((), 0.0) for pattern in patterns]

    n, connection, before = 5, connect(here), heard()
    for more in ({}, AS_A_ROUTE):
        for _ in range(n):
            connection.answer(**more)
    wait_for(lambda: heard()[0] >= before[0] + 2 * n)
    middle = heard()

    def asked(is_binary: bool) -> dict[str, Any]:
        return {"inputs": csr([ROW]), "parameters": {"top_r": 6, "binary_data_output": is_binary}}

    bodies = [(json.dumps(asked(False)).encode(), {}), binary_body(asked(True))]
    answers = [
        connection.exchange("POST", "/v2/models/raw/infer", body, **header, **more)
        for (body, header), more in itertools.product(bodies, ({}, AS_A_ROUTE))
        for _ in range(n)
    ]
    assert {status for status, _, _ in answers} == {200}
    assert (
        len({content for _, _, content in answers}) == 2
    )  # in JSON and in binary, and none of the shadow's
    wait_for(lambda: heard()[0] >= middle[0] + 4 * n)
    for first, second, third in zip(before, middle, heard(), strict=True):
        assert third - second == 2 * (second - first)  # twice as many requests for the same row
    results = r'xylem_shadow_version_requests_total\{model="raw",result="(\w+)",version="2"\}'
    assert set(re.findall(results, here.ask("GET", "/metrics")[1].decode())) == {"answered"}
