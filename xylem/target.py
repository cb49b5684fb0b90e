"""Where a client speaks to: the server's address, and the key, which nothing shows."""

from __future__ import annotations

import re
import ssl
from functools import cached_property
from urllib.parse import quote, urlsplit

_KEY = re.compile(r"[\x21-\x7e]{1,4096}")
_ODD = re.compile(r"[^\x21-\x7e]")
_PORTS = {"http": 80, "https": 443}


class Target:
    """An address, as http://HOST:PORT or https://HOST/PREFIX, and a key or None."""

    def __init__(self, url: str, key: str | None, tls: ssl.SSLContext | None = None) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
            host = host if host is None or host.isascii() else host.encode("idna").decode()
        except ValueError:
            parts, host, port = urlsplit(""), None, None
        is_plain = not (parts.query or parts.fragment or parts.username or parts.password)
        is_plain = is_plain and not _ODD.search(f"{host}{parts.path}")
        if parts.scheme not in _PORTS or not host or not is_plain:
            shown = re.sub(r"//[^/]*@", "//...@", str(url))
            raise ValueError(f"url: expected http://HOST:PORT or https://HOST:PORT, found {shown!r}")
        if key is not None and not _KEY.fullmatch(key):
            raise ValueError("key: expected visible characters of ASCII, found others")
        self.scheme = parts.scheme
        self.host = host
        self.port = port or _PORTS[parts.scheme]
        self.prefix = parts.path.rstrip("/")
        self._key = key
        self._tls = tls

    def __repr__(self) -> str:
        return f"{self.origin}{self.prefix}"

    @property
    def host_header(self) -> str:
        """What the Host header says."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == _PORTS[self.scheme] else f"{name}:{self.port}"

    @property
    def origin(self) -> str:
        """The scheme, host and port."""
        return f"{self.scheme}://{self.host_header}"

    @property
    def headers(self) -> dict[str, str]:
        """What each request says: where to, and, if there is a key, that."""
        shown = {} if self._key is None else {"authorization": f"Bearer {self._key}"}
        return {
            "host": self.host_header,
            "accept": "*/*",
            "accept-encoding": "identity",
            "user-agent": "xylem-client",
            **shown,
        }

    @cached_property
    def tls(self) -> ssl.SSLContext | None:
        """How the server's certificate is verified: by the system's authorities; None for http."""
        if self.scheme == "http":
            return None
        return self._tls or ssl.create_default_context()


def segment(name: str, what: str = "name") -> str:
    """Return a name as one segment of a path. Raises ValueError."""
    if not isinstance(name, str) or name in ("", ".", ".."):
        raise ValueError(f"{what}: expected a name, found {name!r}")
    return quote(name, safe="")


def model_path(model: str, version: int | None = None, alias: str | None = None) -> str:
    """Return the path of a model, of one of its versions, or of what an alias names. Raises ValueError."""
    if version is not None and alias is not None:
        raise ValueError("expected a version or an alias, found both")
    path = f"/v1/models/{segment(model, 'model')}"
    if version is not None:
        return f"{path}/versions/{int(version)}"
    return path if alias is None else f"{path}/aliases/{segment(alias, 'alias')}"
