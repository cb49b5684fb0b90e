"""Listening sockets, of the server and of a worker's page of metrics."""

import socket

from xylem.base.errors import Unavailable

BACKLOG = 2048  # most connections that wait to be accepted; the system may allow fewer


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the first address of `host`, at `port`; 0 is a free port.

    `::` and `*` are all addresses, of IPv6 and IPv4: by default Python lets an IPv6 socket accept
    no IPv4. Where there is no IPv6, `*` is all of IPv4. Raises Unavailable.
    """
    name = host.strip("[]")
    is_dual = False
    if name in ("::", "*"):
        is_dual = socket.has_dualstack_ipv6()
        name = "::" if is_dual or name == "::" else "0.0.0.0"
    try:
        family, _, _, _, address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(
            address[:2], family=family, backlog=BACKLOG, dualstack_ipv6=is_dual
        )
    except (OSError, UnicodeError) as error:  # UnicodeError: not a possible host name
        raise Unavailable(
            f"{host}:{port}: expected an address to listen on, found: {error}"
        ) from None


def url_of(host: str, port: int) -> str:
    """Return the URL of a server at an address or a name."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
