"""R6: malformed requests, mutated by bytes and by grammar: no
5xx, no hang, every refusal a problem.
"""

import json
import random
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from string import punctuation
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import httpx
import orjson
import pytest
from tests.helpers.schemas import fault_of, openapi
from tests.helpers.servers import ServerProcess

from xylem.serving.problems import PROBLEMS

REQUEST_SECONDS = 60.0
CONNECTIONS = 10
"""That ask at once."""

VALID = {
    "raw": [{"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0]}, {"indices": [70], "values": [1]}],
    "text": [{"text": "a game of chess"}, {"indices": [0], "values": [1]}],
    "named": [{"features": {"red": 1.0, "blue": 2}}],
    "hashed": [{"text": "fonts"}],
}
OPTIONS: dict[str, list[Any]] = {
    "top_r": [1, 5, 1000],
    "threshold": [None, 0, 0.2, "tuned"],
    "beam_width": [1, 10],
    "exact": [True, False],
    "allow_labels": [None, ["label::1"]],
    "deny_labels": [["label::2"], []],
    "explain": [False, True],
    "deadline_ms": [None, 1000],
}
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**31 - 1, -(2**31), 2**63, 2**64, 10**30, 0.5, -0.0,
    1e-320, 1e39,
    1e308, "", "1", "é\u0000\u202e", "x" * 2000, "label::1", [], [[]], {}, {"text": 1},
    [1] * 300, [True],
    ["a"], [None],
]  # fmt: skip
ODD_TEXTS = [
    *(b"NaN", b"1e400", b"-", b"1" * 400, b"{}", b"[" * 1500),
    *(b'"\\ud800"', b'"\\u12"', b"\xff", b"\x00"),
]
METHODS = [*["POST"] * 4, *("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "BREW")]
PATHS = [
    "/v1/models/{m}/predict", "/v1/models/{m}/versions/{r}/predict",
    "/v1/models/{m}/aliases/{r}/predict",
    "/v1/models/{m}/batch", "/v1/models/{m}/versions/{r}/batch", "/v1/models/{m}", "/v1/models",
    "/readyz",
    "/metrics", "/docs", "/openapi.json", "/v1/models/{m}/predict/", "/{m}/{r}",
    "/v1/models/{m}/aliases/{r}/batch",
]  # fmt: skip
NAMES = [
    "none",
    "RAW",
    "..",
    "%2e%2e",
    "a" * 300,
    "%00",
    "é",
    "raw@1",
    " ",
    "-",
    "%ff",
    "1",
    "latest",
]
REFS = [
    *("1", "2", "3", "0", "-1", "01", "99999999999999999999", "1.0"),
    *("latest", "stable", "LATEST", "%2F", "é"),
]
HEADERS = [
    {"content-type": "text/plain"}, {"content-type": "application/json;charset=utf-16"},
    {"content-type": "application/x-ndjson"}, {"content-encoding": "gzip"}, {"accept": "text/html"},
    {"x-request-id": "a b"}, {"x-request-id": "x" * 500}, {"range": "bytes=0-1"},
    {"transfer-encoding": "chunked"}, {"content-type": "application/json"},
]  # fmt: skip


BEYOND_SCHEMA = {"bad-instance", "unknown-label", "thresholds-not-tuned", "limit-exceeded"}
"""What a request that fits the schema can still be refused for."""


class Request(NamedTuple):
    """A request to send."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes


class Mutator:
    """Makes requests that are almost right."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def request(self) -> Request:
        """Return a request that is almost right."""
        model = self.random.choice(list(VALID))
        path = self.random.choice(PATHS[:4] if self.random.random() < 0.8 else PATHS)
        name = model if self.random.random() < 0.9 else self.random.choice(NAMES)
        url = path.replace("{m}", name).replace("{r}", self.random.choice(REFS))
        is_batch = path.endswith("/batch")
        headers = {"content-type": "application/x-ndjson" if is_batch else "application/json"}
        if self.random.random() < 0.1:
            headers |= self.random.choice(HEADERS)
        body = self._lines(model) if is_batch else self._body(model)
        if is_batch and self.random.random() < 0.4:
            url += "?" + self._query()
        method = "POST" if self.random.random() < 0.9 else self.random.choice(METHODS)
        return Request(method, url, headers, self._mutated(body))

    def _body(self, model: str) -> bytes:
        instances = [self._instance(model) for _ in range(self.random.randint(1, 3))]
        fields: dict[str, Any] = {"instances": instances}
        for key in self.random.sample(list(OPTIONS), self.random.randint(0, 3)):
            fields[key] = self.random.choice(OPTIONS[key])
        if self.random.random() < 0.3:
            fields[self.random.choice([*fields, "extra", ""])] = self.random.choice(ODD)
        return json.dumps(fields).encode()

    def _lines(self, model: str) -> bytes:
        lines = [
            json.dumps(self._instance(model)).encode() for _ in range(self.random.randint(0, 6))
        ]
        return self.random.choice([b"\n", b"\n", b"\r\n", b"\n\n"]).join(lines)

    def _instance(self, model: str) -> Any:
        instance: dict[str, Any] = dict(self.random.choice(VALID[model]))
        while self.random.random() < 0.3:
            key = self.random.choice(
                [*instance, "text", "indices", "values", "features", "id", "extra"]
            )
            values = [[value] for value in ODD] if key in ("indices", "values") else ODD
            instance[key] = self.random.choice([*values, *ODD])
        return instance if self.random.random() < 0.95 else self.random.choice(ODD)

    def _query(self) -> str:
        key = self.random.choice([*OPTIONS, "extra", "", "%ff"])
        values = ["1", "0", "x", "tuned", "0.5", "true", "", "%ff", "%00", "NaN", "[]", "1e9"]
        value = self.random.choice(values)
        return "&".join([f"{key}={value}"] * self.random.randint(1, 2))

    def _mutated(self, data: bytes) -> bytes:
        while self.random.random() < 0.4:
            i, j = sorted((self.random.randint(0, len(data)), self.random.randint(0, len(data))))
            start, end, new = self.random.choice(
                [
                    (i, i + 1, bytes([self.random.randrange(256)])),  # a byte is another
                    (i, len(data), b""),  # all that follows is missing
                    (i, i + self.random.randint(1, 9), b""),  # some bytes are missing
                    (i, i, self.random.choice(ODD_TEXTS)),  # something is put in
                    (j, j, data[i:j]),  # a stretch is twice there
                    (i, i, b""),  # nothing is changed
                ]
            )
            data = data[:start] + new + data[end:]
        return data


class Contract:
    """Holds answers against the OpenAPI document."""

    def __init__(self) -> None:
        self.document = openapi()
        paths = self.document["paths"].items()
        self._paths = {re.compile(re.sub(r"{\w+}", "[^/]+", path)): item for path, item in paths}
        self.predicts = 0

    def check(self, request: Request, response: httpx.Response) -> None:
        """Assert that an answer is a good one or a refusal as it should
        be, and that the document says so.
        """
        assert response.status_code < 500, (request, response.text)
        assert response.headers["x-request-id"]
        if request.method == "HEAD":
            return
        path = unquote(request.url.partition("?")[0])
        items = [item for pattern, item in self._paths.items() if pattern.fullmatch(path)]
        operation = items[0].get(request.method.lower()) if items else None
        is_cut = (
            may_be_cut(request)
            and response.status_code == 400
            and b'"http-error"' in response.content
        )
        if operation is None or is_cut:
            assert is_cut or response.status_code in (404, 405), (request, response.text)
            self._check_problem(response)
            return
        declared = operation["responses"][str(response.status_code)]["content"]
        media = response.headers["content-type"].partition(";")[0]
        assert media in declared, (request, media)
        if response.status_code >= 400:
            self._check_problem(response)
        elif media == "application/json":
            assert fault_of(self.document, declared[media]["schema"], response.json()) is None
        elif media == "application/x-ndjson":
            self._check_lines(request, response, declared[media]["schema"])
        if operation["operationId"].startswith("predict"):
            self._check_request(request, response, operation)

    def _check_problem(self, response: httpx.Response) -> None:
        assert response.headers["content-type"] == "application/problem+json"
        schema = {"$ref": "#/components/schemas/Problem"}
        assert fault_of(self.document, schema, response.json()) is None
        assert response.json()["code"] in PROBLEMS

    def _check_lines(self, request: Request, response: httpx.Response, schema: Any) -> None:
        lines = request.body.split(b"\n")
        if not lines[-1]:
            lines.pop()
        answers = [json.loads(line) for line in response.content.splitlines()]
        assert len(answers) == len(lines), request
        for line, answer in zip(lines, answers, strict=True):
            assert fault_of(self.document, schema, answer) is None
            self._check_agreement("BatchLine", line, answer.get("error"))

    def _check_request(self, request: Request, response: httpx.Response, operation: Any) -> None:
        if response.status_code in (404, 415):
            return
        self.predicts += 1
        problem = response.json() if response.status_code != 200 else None
        if request.headers.get("content-encoding") == "gzip":
            assert problem["code"] == "broken-content-encoding", (
                "no body of this test is compressed"
            )
        else:
            self._check_agreement("PredictRequest", request.body, problem)

    def _check_agreement(self, schema: str, body: bytes, problem: Any) -> None:
        """Assert that what the schema allows is not refused for its
        shape, and what it forbids is refused.
        """
        try:
            value = orjson.loads(body)
        except orjson.JSONDecodeError:
            assert problem["code"] == "malformed-json"
            return
        fault = fault_of(self.document, {"$ref": f"#/components/schemas/{schema}"}, value)
        if fault is not None:
            assert problem is not None, (fault, body)
        elif problem is not None:
            is_uneven = "expected as many values" in problem["detail"]
            # a line may have other fields, but not those of an instance of another kind
            is_of_two_kinds = problem["detail"].startswith('expected one of {"text"}')
            is_beyond = is_uneven or is_of_two_kinds or problem["code"] in BEYOND_SCHEMA
            assert is_beyond, (problem, body)


def may_be_cut(request: Request) -> bool:
    """Whether a request may end the connection: the server's parser
    refuses it, or its lines are no gzip.
    """
    is_chunked = "transfer-encoding" in request.headers
    is_unparsable = request.method == "BREW" or is_chunked or not request.url.isascii()
    return is_unparsable or (
        "content-encoding" in request.headers and request.url.endswith("/batch")
    )


def answer_to(connection: HTTPConnection, request: Request) -> httpx.Response | None:
    """Send a request as it is; None: the answer was lost, as the server closed with
    bytes unread.
    """
    try:
        connection.putrequest(request.method, quote(request.url, safe=punctuation))
        is_chunked = "transfer-encoding" in request.headers
        length = {} if is_chunked else {"content-length": str(len(request.body))}
        for name, value in (request.headers | length).items():
            connection.putheader(name, value)
        connection.endheaders(request.body, encode_chunked=is_chunked)
        answer = connection.getresponse()
        return httpx.Response(answer.status, headers=answer.getheaders(), content=answer.read())
    except (HTTPException, ConnectionError):
        connection.close()
        return None


SOAK = [pytest.mark.soak, pytest.mark.timeout(0)]


@pytest.mark.parametrize("n", [10_000, pytest.param(1_000_000, marks=SOAK)], ids=["quick", "soak"])
def test_malformed_requests(shared_store: Path, seed: int, n: int) -> None:
    """Ask a real server over real sockets, as most clients do: on
    connections that are kept, without ids.
    """
    mutator, contract = Mutator(seed), Contract()
    statuses, codes = Counter[int](), Counter[str]()

    def judge(request: Request, response: httpx.Response | None) -> None:
        if response is None:
            assert may_be_cut(request), request
            statuses[0] += 1
            return
        contract.check(request, response)
        statuses[response.status_code] += 1
        if response.status_code >= 400 and request.method != "HEAD":
            codes[response.json()["code"]] += 1

    with (
        ServerProcess(shared_store, access_log=False) as server,
        ThreadPoolExecutor(CONNECTIONS) as threads,
    ):
        address = ("127.0.0.1", server.port)
        connections = [
            HTTPConnection(*address, timeout=REQUEST_SECONDS) for _ in range(CONNECTIONS)
        ]
        for _ in range(n // CONNECTIONS):
            requests = [mutator.request() for _ in connections]
            answers = list(threads.map(answer_to, connections, requests))
            for request, response in zip(requests, answers, strict=True):
                judge(request, response)
        for connection in connections:
            connection.close()
        assert server.terminate() == 0
        assert not server.events("failure")
    print(statuses, codes)
    assert statuses.total() > 0.95 * n
    assert statuses[200] > 0.1 * n  # the mutations are not all refused at the door
    assert len(codes) >= 10
    assert contract.predicts > 0.1 * n
