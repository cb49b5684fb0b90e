"""Bodies that come packed, and answers that go so: the same as otherwise, bounded, and streamed."""

import asyncio
import functools
import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.conftest import InProcess, answered_from_bytes, post, scope_of, serving, settings_of
from tests.helpers.feedback_helpers import NDJSON, RAW
from tests.helpers.wires import Wire

from xylem.api.door.encodings import PACKED_FROM, PIECE_BYTES, Unpacking, codings_of, takes_gzip
from xylem.api.door.problems import BodyTooLarge, BrokenEncoding, UnsupportedEncoding

GZIP = {"content-encoding": "gzip"}
PREDICT, BATCH = "/v1/models/raw/predict", "/v1/models/raw/batch"
pack = functools.partial(gzip.compress, mtime=0)
BOMB = pack(bytes(64 << 20))


def unpacked(parts: list[bytes], most: int | None = None) -> list[bytes]:
    """The pieces that a body becomes which comes in these parts."""
    sizes: list[int] = []

    async def main() -> list[bytes]:
        unpacking, pieces, more = Unpacking(Wire(*parts).receive, most, sizes.append), [], True
        while more:
            message = await unpacking()
            pieces.append(message["body"])
            more = message["more_body"]
        assert sizes == ([] if most is None else [len(piece) for piece in pieces])
        return pieces

    return asyncio.run(main())


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=4), st.integers(1, 40), st.data())
def test_a_body_is_the_same_however_it_is_cut(
    members: list[bytes], size: int, data: st.DataObject
) -> None:
    repeats = data.draw(st.sampled_from([1, 1000]))
    packed = b"".join(pack(member * repeats) for member in members)
    parts = [packed[i : i + size * repeats] for i in range(0, len(packed), size * repeats)]
    assert b"".join(unpacked(parts)) == b"".join(member * repeats for member in members)


@pytest.mark.parametrize("n_zeros", [1, 2, 600, PIECE_BYTES + 1])
def test_zeros_behind_a_member_are_padding(n_zeros: int) -> None:
    """As tapes and some disks leave them; files of data are read by the same rule."""
    member = pack(b"{}")
    for packed, found in (
        (member + bytes(n_zeros), b"{}"),
        (member + bytes(n_zeros) + member + bytes(n_zeros), b"{}{}"),
    ):
        assert gzip.decompress(packed) == found
        n = len(member)
        for parts in ([packed], [packed[:n], packed[n:]], [packed[: n + 1], packed[n + 1 :], b""]):
            assert b"".join(unpacked(parts)) == found
            assert b"".join(unpacked(parts, 4)) == found


@pytest.mark.parametrize(
    "n_bytes", [PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 5 * PIECE_BYTES]
)
def test_no_piece_is_large_and_none_is_lost(n_bytes: int) -> None:
    pieces = unpacked([pack(bytes(n_bytes))])
    assert max(map(len, pieces)) <= PIECE_BYTES
    assert sum(map(len, pieces)) == n_bytes


async def test_a_body_that_is_collected_stays_packed_to_its_end() -> None:
    body = bytes(1000)
    unpacking = Unpacking(
        Wire(*(bytes((byte,)) for byte in pack(body)), seconds=0).receive, 1000, print
    )
    assert await unpacking() == {"type": "http.request", "body": body, "more_body": False}


def test_unpacked_bytes_at_the_limit_and_one_more() -> None:
    assert unpacked([pack(bytes(100))], 100) == [bytes(100)]
    with pytest.raises(
        BodyTooLarge, match=r"at most 99 bytes .* when the body is unpacked, found more"
    ):
        unpacked([pack(bytes(100))], 99)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"", "its end is missing"),
        (b"{}", "damage: .*incorrect header"),
        (zlib.compress(b"{}"), "damage: .*incorrect header"),
        (pack(b"{}")[:-1], "its end is missing"),
        (pack(b"{}")[:-5] + b"12345", "damage: .*incorrect"),
        (pack(b"{}") + b"more", "damage: .*incorrect header"),
        (pack(b"{}") + b"\0more", "damage: .*incorrect header"),
        (b"\0" + pack(b"{}"), "damage: .*incorrect header"),
        (pack(b"{}") + pack(b"{}")[:9], "its end is missing"),
    ],
)
def test_what_is_no_gzip_says_so(body: bytes, found: str) -> None:
    for parts in ([body], [body[:1], body[1:]], [body, b""]):
        with pytest.raises(
            BrokenEncoding, match=f"expected (whole )?gzip data, found (that )?{found}"
        ):
            unpacked(parts)


def test_who_takes_gzip() -> None:
    for value in (b"gzip", b"br, GZIP;q=0.5, *;q=0", b"x-gzip", b"gzip;q=1.0", b"gzip; q=0.05"):
        assert takes_gzip(value), value
    for value in (b"gzip;q=0", b"gzip ; q=0.000", b"identity", b"notgzip", b""):
        assert not takes_gzip(value), value


def test_codings_that_are_not_taken() -> None:
    assert codings_of([(b"content-encoding", b" X-GZIP ")])[0]
    assert not codings_of([(b"content-encoding", b"identity")])[0]
    for values in ([b"br"], [b"gzip, gzip"], [b"gzip", b"gzip"]):
        with pytest.raises(
            UnsupportedEncoding, match="Content-Encoding: expected gzip or none, found"
        ):
            codings_of([(b"content-encoding", value) for value in values])


def test_packed_requests_and_lines_are_answered_as_any(in_process: InProcess) -> None:
    body = json.dumps({"instances": [RAW]}).encode()
    plain, packed = in_process(post(PREDICT, body)), in_process(post(PREDICT, pack(body), **GZIP))
    labels = [answer.json()["predictions"][0]["labels"] for answer in (plain, packed)]
    assert labels[0] == labels[1]
    lines = (
        b"".join(b"%b\n" % json.dumps({**RAW, "n": i}).encode() for i in range(5))
        + b"x" * 5000
        + b"\n"
    )
    plain = in_process(post(BATCH, lines, **NDJSON))
    packed = in_process(post(BATCH, pack(lines), **NDJSON, **GZIP))
    rows = [
        [json.loads(line).get("labels") for line in one.text.splitlines()]
        for one in (plain, packed)
    ]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 6


@pytest.mark.parametrize(
    "path", [PREDICT, "/v1/models/raw/score", "/v1/models/raw/feedback", "/v2/models/raw/infer"]
)
def test_a_bomb_and_what_is_no_gzip_are_problems(in_process: InProcess, path: str) -> None:
    for body, encoding, status, code, said in (
        (BOMB, "gzip", 413, "body-too-large", "when the body is unpacked"),
        (b'{"instances": []}', "gzip", 400, "broken-content-encoding", ""),
        (b"{}", "br", 415, "unsupported-content-encoding", ""),
    ):
        answer = in_process(post(path, body, **{"content-encoding": encoding}))
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert said in answer.json()["detail"]


def test_a_bomb_of_a_batch_is_one_long_line(in_process: InProcess) -> None:
    (line,) = in_process(post(BATCH, BOMB, **NDJSON, **GZIP)).text.splitlines()
    assert json.loads(line)["error"]["code"] == "limit-exceeded"


async def test_lines_that_are_no_gzip_end_a_batch(shared_store: Path) -> None:
    """The lines before are answered; the answer does not end as one that is whole."""
    wire = Wire(pack(json.dumps(RAW).encode() + b"\n") + b"rest")
    async with serving(settings_of(shared_store)) as (app, _):
        await app(scope_of("POST", BATCH, {"host": "x", **NDJSON, **GZIP}), wire.receive, wire.send)
    first, last = map(json.loads, wire.body.splitlines())
    assert "labels" in first
    assert last["error"]["code"] == "broken-content-encoding"
    assert not wire.is_ended


# --- answers


@pytest.mark.parametrize(("n_rows", "top_r", "is_packed"), [(1, 3, False), (4, 10, True)])
async def test_long_answers_are_packed(
    shared_store: Path, n_rows: int, top_r: int, is_packed: bool
) -> None:
    """By the route and, its head seen before, from the bytes of the request."""

    def labels_in(answer: bytes) -> Any:
        return [one["labels"] for one in json.loads(answer)["predictions"]]

    body = json.dumps({"instances": [RAW] * n_rows, "top_r": top_r}).encode()
    async with serving(settings_of(shared_store)) as (app, client):
        for takes, packs in (("identity", False), ("gzip", is_packed)):
            headers = {"content-type": "application/json", "accept-encoding": takes}
            routed = await client.post(PREDICT, content=body, headers=headers)
            assert ("content-encoding" in routed.headers) is packs
            assert ("Accept-Encoding" in routed.headers.get("vary", "")) is packs
            assert (len(routed.content) >= PACKED_FROM) is is_packed  # httpx unpacks it
            answer = answered_from_bytes(app, PREDICT, body, **{"accept-encoding": takes})
            head, _, content = answer.partition(b"\r\n\r\n")
            assert (b"\r\ncontent-encoding: gzip" in head) is packs
            assert (b"\r\nvary: Accept-Encoding" in head) is packs
            assert b"content-length: %d\r\n" % len(content) in head
            found = gzip.decompress(content) if packs else content
            assert labels_in(found) == labels_in(routed.content)
        assert (
            answered_from_bytes(app, PREDICT, pack(body), **GZIP) is None
        )  # such a head is not remembered


async def test_answers_of_a_packed_batch_come_while_it_is_sent(shared_store: Path) -> None:
    """Each line is answered, and its answer can be unpacked, before the next is sent."""
    wire, requests = Wire(), asyncio.Queue[Any]()
    headers = {"host": "x", **NDJSON, "accept-encoding": "gzip", **GZIP}
    packing, unpacking = zlib.compressobj(wbits=31), zlib.decompressobj(wbits=31)
    async with serving(settings_of(shared_store)) as (app, _), asyncio.timeout(60):
        running = asyncio.create_task(
            app(scope_of("POST", BATCH, headers), requests.get, wire.send)
        )
        for n in range(1, 4):
            line = packing.compress(json.dumps(RAW).encode() + b"\n") + packing.flush(
                zlib.Z_SYNC_FLUSH
            )
            await requests.put({"type": "http.request", "body": line, "more_body": True})
            while (found := zlib.decompressobj(wbits=31).decompress(wire.body)).count(b"\n") < n:
                await asyncio.sleep(0.001)
            assert len(json.loads(found.splitlines()[-1])["labels"]) == 5
        await requests.put({"type": "http.request", "body": packing.flush(), "more_body": False})
        await running
    unpacking.decompress(wire.body)
    assert unpacking.eof
    assert wire.headers[b"content-encoding"] == b"gzip"
