"""Which families answer for each way to name an address."""

import socket

import pytest

from xylem.base.access.key_text import is_loopback
from xylem.base.errors import Unavailable
from xylem.base.sockets import listen, url_of

V4, V6 = "127.0.0.1", "::1"
HOSTS = {
    "127.0.0.1": {V4},
    "0.0.0.0": {V4},
    "::1": {V6},
    "[::1]": {V6},
    "::": {V4, V6},
    "[::]": {V4, V6},
    "*": {V4, V6},
}

needs_both = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs IPv6")


def answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), 10).close()
    except OSError:
        return False
    return True


@needs_both
@pytest.mark.parametrize("host", HOSTS)
def test_an_address_answers_its_families(host: str) -> None:
    with listen(host, 0) as listener:
        port = listener.getsockname()[1]
        assert {address for address in (V4, V6) if answers(address, port)} == HOSTS[host]


@pytest.mark.parametrize("host", HOSTS)
def test_only_this_machine_reaches_a_loopback_address(host: str) -> None:
    assert is_loopback(host) == (host in ("127.0.0.1", "::1", "[::1]"))


def test_all_addresses_are_those_of_ipv4_where_there_is_no_ipv6(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with listen("*", 0) as listener:
        assert listener.family == socket.AF_INET


@pytest.mark.parametrize("host", ["no such host", "999.1.1.1", "x" * 64 + ".example", "**"])
def test_what_is_no_address_is_named(host: str) -> None:
    with pytest.raises(Unavailable, match="expected an address to listen on, found") as caught:
        listen(host, 0)
    assert str(caught.value).startswith(f"{host}:0: ")


def test_the_url_of_an_address() -> None:
    assert [url_of(host, 1) for host in ("::1", V4, "x")] == [
        "http://[::1]:1",
        f"http://{V4}:1",
        "http://x:1",
    ]
