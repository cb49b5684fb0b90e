"""TLS by the lines that haproxy.cfg and nginx.conf have for it, in the real ones."""

from __future__ import annotations

import http.client
import json
import re
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.test_haproxy import CONF as HAPROXY_CONF
from tests.e2e.test_haproxy import HAPROXY
from tests.e2e.test_nginx import CONF as NGINX_CONF
from tests.e2e.test_nginx import NGINX, stream_option  # noqa: F401
from tests.replicas import BODY, JSON, PREDICT, Replica, listens, reserved_ports, wait_until
from tests.tls_relay import make_certificate


@contextmanager
def balanced(command: list[object], port: int) -> Iterator[None]:
    with subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: process.poll() is None and listens(port))
            yield
        finally:
            process.terminate()


@pytest.mark.parametrize("balancer", ["haproxy", "nginx"])
def test_predictions_over_tls(
    balancer: str, shared_store: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    option: list[str] = []
    if balancer == "haproxy" and not Path(HAPROXY).exists():
        pytest.skip("haproxy is not installed")
    if balancer == "nginx":
        option = request.getfixturevalue("stream_option")
    certificate, key = make_certificate(tmp_path)
    (tmp_path / "tls.pem").write_text(certificate.read_text() + key.read_text())
    (tmp_path / "tls.crt").write_text(certificate.read_text())
    (tmp_path / "tls.key").write_text(key.read_text())
    with reserved_ports(5) as ports:
        plain, tls, streams, tls_streams, replica = ports
        text = (HAPROXY_CONF if balancer == "haproxy" else NGINX_CONF).read_text()
        text = re.sub(r"xylem-\d:8080", f"127.0.0.1:{replica}", text)
        word = "bind :" if balancer == "haproxy" else "listen "
        places = {f"{word}8080": plain, f"{word}8443": tls}
        places |= {} if balancer == "haproxy" else {"listen 8081": streams, "listen 8444": tls_streams}
        text, n_lines = re.subn(r"^(\s+)#(bind|listen|ssl_)", r"\1\2", text, flags=re.MULTILINE)
        assert n_lines
        text = text.replace("/tmp/", f"{tmp_path}/").replace("/etc/xylem/", f"{tmp_path}/")
        for place, port in places.items():
            assert text.count(place) == 1
            text = text.replace(place, f"{word.rstrip(' :')} 127.0.0.1:{port}")
        conf = tmp_path / "balancer.conf"
        conf.write_text(text if balancer == "haproxy" else f"daemon off;\n{text}")
        command = [HAPROXY, "-f", conf] if balancer == "haproxy" else [NGINX, "-c", conf, *option]
        with Replica(shared_store, replica, tmp_path / "xylem.db"), balanced(command, tls):
            context = ssl.create_default_context(cafile=certificate)
            for each in [tls] if balancer == "haproxy" else [tls, tls_streams]:
                connection = http.client.HTTPSConnection("localhost", each, context=context, timeout=60)
                connection.request("POST", PREDICT, BODY, JSON)
                response = connection.getresponse()
                assert response.status == 200 and json.loads(response.read())["predictions"]
                assert connection.sock.version() in ("TLSv1.2", "TLSv1.3")
                connection.close()
            strangers = http.client.HTTPSConnection("localhost", tls, timeout=60)
            with pytest.raises(ssl.SSLCertVerificationError):
                strangers.request("GET", "/v1/models")
