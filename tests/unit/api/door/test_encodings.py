"""Bodies that come packed, and answers that go so: the same as otherwise, bounded, and streamed."""

import asyncio
import functools
import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.door.encodings import PACKED_FROM, PIECE_BYTES, Unpacking, codings_of, takes_gzip
from service.api.door.problems import BodyTooLarge, BrokenEncoding, UnsupportedEncoding
from tests.conftest import InProcess, post, scope_of, serving, settings_of, whole_request

RAW = {"indices": [1, 5, 33], "values": [1.0, 0.5, -2.0]}
GZIP = {"content-encoding": "gzip"}
PREDICT = "/v1/models/raw/predict"
pack = functools.partial(gzip.compress, mtime=0)
BOMB = pack(bytes(64 << 20))


def unpacked(parts: list[bytes], most: int | None = None) -> list[bytes]:
    """The pieces that a body becomes which comes in these parts."""
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    messages[-1]["more_body"] = False
    waiting = iter(messages)

    async def receive() -> Any:
        return next(waiting)

    async def main() -> list[bytes]:
        unpacking, pieces, more = Unpacking(receive, most), [], True
        while more:
            message = await unpacking()
            pieces.append(message["body"])
            more = message["more_body"]
        return pieces

    return asyncio.run(main())


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=4), st.integers(1, 40), st.data())
def test_a_body_is_the_same_however_it_is_cut(members: list[bytes], size: int, data: st.DataObject) -> None:
    repeats = data.draw(st.sampled_from([1, 1000]))
    packed = b"".join(pack(member * repeats) for member in members)
    parts = [packed[i : i + size * repeats] for i in range(0, len(packed), size * repeats)]
    assert b"".join(unpacked(parts)) == b"".join(member * repeats for member in members)


@pytest.mark.parametrize("n_bytes", [PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 5 * PIECE_BYTES])
def test_no_piece_is_large_and_none_is_lost(n_bytes: int) -> None:
    pieces = unpacked([pack(bytes(n_bytes))])
    assert max(map(len, pieces)) <= PIECE_BYTES
    assert sum(map(len, pieces)) == n_bytes


@pytest.mark.parametrize(("most", "fits"), [(100, True), (99, False)])
def test_unpacked_bytes_at_the_limit_and_one_more(most: int, fits: bool) -> None:
    if fits:
        assert unpacked([pack(bytes(100))], most) == [bytes(100)]
    else:
        with pytest.raises(BodyTooLarge, match=r"at most 99 bytes .* when the body is unpacked, found more"):
            unpacked([pack(bytes(100))], most)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"", "its end is missing"),
        (b"{}", "damage: .*incorrect header"),
        (zlib.compress(b"{}"), "damage: .*incorrect header"),
        (pack(b"{}")[:-1], "its end is missing"),
        (pack(b"{}")[:-5] + b"12345", "damage: .*incorrect"),
        (pack(b"{}") + b"more", "damage: .*incorrect header"),
        (pack(b"{}") + pack(b"{}")[:9], "its end is missing"),
    ],
)
def test_what_is_no_gzip_says_so(body: bytes, found: str) -> None:
    for parts in ([body], [body[:1], body[1:]], [body, b""]):
        with pytest.raises(BrokenEncoding, match=f"expected (whole )?gzip data, found (that )?{found}"):
            unpacked(parts)


@pytest.mark.parametrize(
    ("value", "takes"),
    [
        *(
            (value, True)
            for value in (b"gzip", b"br, GZIP;q=0.5, *;q=0", b"x-gzip", b"gzip;q=1.0", b"gzip; q=0.05")
        ),
        *((value, False) for value in (b"gzip;q=0", b"gzip ; q=0.000", b"identity", b"notgzip", b"")),
    ],
)
def test_who_takes_gzip(value: bytes, takes: bool) -> None:
    assert takes_gzip(value) is takes


def test_codings_that_are_not_taken() -> None:
    assert codings_of([(b"content-encoding", b" X-GZIP ")])[0]
    assert not codings_of([(b"content-encoding", b"identity")])[0]
    for values in ([b"br"], [b"gzip, gzip"], [b"gzip", b"gzip"]):
        with pytest.raises(UnsupportedEncoding, match="Content-Encoding: expected gzip or none, found"):
            codings_of([(b"content-encoding", value) for value in values])


def test_a_packed_request_is_answered_as_any(in_process: InProcess) -> None:
    body = json.dumps({"instances": [RAW]}).encode()
    plain, packed = in_process(post(PREDICT, body)), in_process(post(PREDICT, pack(body), **GZIP))
    assert packed.status_code == 200
    labels = [answer.json()["predictions"][0]["labels"] for answer in (plain, packed)]
    assert labels[0] == labels[1]


def test_packed_lines_are_answered_as_any(in_process: InProcess) -> None:
    lines = b"".join(b"%b\n" % json.dumps({**RAW, "n": i}).encode() for i in range(5)) + b"x" * 5000 + b"\n"
    named = {"content-type": "application/x-ndjson"}
    plain = in_process(post("/v1/models/raw/batch", lines, **named))
    packed = in_process(post("/v1/models/raw/batch", pack(lines), **named, **GZIP))
    for line in packed.text.splitlines():
        json.loads(line)
    assert len(packed.text.splitlines()) == len(plain.text.splitlines()) == 6


@pytest.mark.parametrize(
    "path", [PREDICT, "/v1/models/raw/score", "/v1/models/raw/feedback", "/v2/models/raw/infer"]
)
def test_a_bomb_and_what_is_no_gzip_are_problems(in_process: InProcess, path: str) -> None:
    bomb = in_process(post(path, BOMB, **GZIP))
    assert (bomb.status_code, bomb.json()["code"]) == (413, "body-too-large")
    assert "when the body is unpacked" in bomb.json()["detail"]
    broken = in_process(post(path, b'{"instances": []}', **GZIP))
    assert (broken.status_code, broken.json()["code"]) == (400, "broken-content-encoding")
    other = in_process(post(path, b"{}", **{"content-encoding": "br"}))
    assert (other.status_code, other.json()["code"]) == (415, "unsupported-content-encoding")


def test_a_bomb_of_a_batch_is_one_long_line(in_process: InProcess) -> None:
    named = {**GZIP, "content-type": "application/x-ndjson"}
    (line,) = in_process(post("/v1/models/raw/batch", BOMB, **named)).text.splitlines()
    assert json.loads(line)["error"]["code"] == "limit-exceeded"


async def test_lines_that_are_no_gzip_end_a_batch(shared_store: Path) -> None:
    """The lines before are answered; the answer does not end as one that is whole."""
    sent: list[Any] = []

    async def receive() -> Any:
        body = pack(json.dumps(RAW).encode() + b"\n") + b"rest"
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    named = {"host": "x", "content-type": "application/x-ndjson", **GZIP}
    async with serving(settings_of(shared_store)) as (app, _):
        await app(scope_of("POST", "/v1/models/raw/batch", named), receive, send)
    first, last = b"".join(message.get("body", b"") for message in sent).splitlines()
    assert "labels" in json.loads(first)
    assert json.loads(last)["error"]["code"] == "broken-content-encoding"
    assert sent[-1]["more_body"]


# --- answers


@pytest.mark.parametrize(("n_rows", "top_r", "is_packed"), [(1, 3, False), (4, 10, True)])
async def test_long_answers_are_packed_on_both_ways(
    shared_store: Path, n_rows: int, top_r: int, is_packed: bool
) -> None:
    """By the route and, its head seen before, from the bytes of the request."""
    body = json.dumps({"instances": [RAW] * n_rows, "top_r": top_r}).encode()
    async with serving(settings_of(shared_store)) as (app, client):
        named = {"content-type": "application/json"}
        plain = await client.post(PREDICT, content=body, headers={**named, "accept-encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert (len(plain.content) >= PACKED_FROM) is is_packed
        routed = await client.post(PREDICT, content=body, headers={**named, "accept-encoding": "gzip"})
        assert ("content-encoding" in routed.headers) is is_packed
        assert ("Accept-Encoding" in routed.headers.get("vary", "")) is is_packed
        wholes = app.state.whole_requests
        for takes in (True, False):
            message, scope = whole_request(PREDICT, body, **{"accept-encoding": "gzip"} if takes else {})
            wholes.learn(message, scope)
            head, _, content = wholes.answer(message, b"").partition(b"\r\n\r\n")
            assert (b"\r\ncontent-encoding: gzip" in head) is (takes and is_packed)
            assert (b"\r\nvary: Accept-Encoding" in head) is (takes and is_packed)
            assert b"content-length: %d\r\n" % len(content) in head
            found = json.loads(gzip.decompress(content) if takes and is_packed else content)
            for answer in (plain.json(), routed.json()):
                for one, other in zip(found["predictions"], answer["predictions"], strict=True):
                    assert one["labels"] == other["labels"]


async def test_a_packed_head_is_not_remembered(shared_store: Path) -> None:
    body = pack(json.dumps({"instances": [RAW]}).encode())
    async with serving(settings_of(shared_store)) as (app, _):
        message, scope = whole_request(PREDICT, body, **GZIP)
        app.state.whole_requests.learn(message, scope)
        assert app.state.whole_requests.answer(message, b"") is None


async def test_answers_of_a_packed_batch_come_while_it_is_sent(shared_store: Path) -> None:
    """Each line is answered, and its answer can be unpacked, before the next is sent."""
    app_answers: asyncio.Queue[bytes] = asyncio.Queue()
    sent: asyncio.Queue[Any] = asyncio.Queue()
    headers: dict[bytes, bytes] = {}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            headers.update(message["headers"])
        else:
            await app_answers.put(message.get("body", b""))

    named = {"host": "x", "content-type": "application/x-ndjson", "accept-encoding": "gzip", **GZIP}
    packing = zlib.compressobj(wbits=31)
    unpacking = zlib.decompressobj(wbits=31)
    async with serving(settings_of(shared_store)) as (app, _):
        scope = scope_of("POST", "/v1/models/raw/batch", named)
        running = asyncio.create_task(app(scope, sent.get, send))
        for _ in range(3):
            line = packing.compress(json.dumps(RAW).encode() + b"\n") + packing.flush(zlib.Z_SYNC_FLUSH)
            await sent.put({"type": "http.request", "body": line, "more_body": True})
            found = b""
            while not found.endswith(b"\n"):
                found += unpacking.decompress(await asyncio.wait_for(app_answers.get(), 60))
            assert len(json.loads(found)["labels"]) == 5
        await sent.put({"type": "http.request", "body": packing.flush(), "more_body": False})
        await running
        while not app_answers.empty():
            unpacking.decompress(app_answers.get_nowait())
        assert unpacking.eof
        assert headers[b"content-encoding"] == b"gzip"
