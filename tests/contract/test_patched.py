"""What we override or call of the inner parts of libraries is there, as pyproject.toml's bounds promise."""

from __future__ import annotations

import inspect

import pytest
import uvicorn
from numba.core import caching, codegen, compiler, sigutils
from uvicorn.protocols.http import httptools_impl

from service.api.door.protocol import BoundedProtocol
from service.serve import _Server

PROTOCOL = httptools_impl.HttpToolsProtocol
CYCLE_FIELDS = {
    "body",
    "chunked_encoding",
    "keep_alive",
    "response_complete",
    "response_started",
    "scope",
    "transport",
    "waiting_for_100_continue",
}
"""What `JoinedWrites` and `BoundedProtocol` read of a request and its answer, or set."""


def overridden(ours: type, theirs: type) -> list[str]:
    return [name for name, value in vars(ours).items() if inspect.isfunction(value) and hasattr(theirs, name)]


def test_each_overridden_method_of_the_protocol_exists_and_is_called_alike() -> None:
    names = overridden(BoundedProtocol, PROTOCOL)
    assert {"_start_asgi_task", "timeout_keep_alive_handler", "on_headers_complete", "eof_received"} <= set(
        names
    )
    for name in names:
        ours, theirs = (
            inspect.signature(getattr(cls, name)).parameters for cls in (BoundedProtocol, PROTOCOL)
        )
        assert len(ours) == len(theirs), f"uvicorn {uvicorn.__version__}: {name} takes {list(theirs)}"


def test_nothing_of_the_protocol_is_meant_to_override_what_is_gone() -> None:
    """A name that a new uvicorn no longer has would be a method that nobody calls."""
    source = inspect.getsource(BoundedProtocol)
    called = {name for name in dir(PROTOCOL) if f"super().{name}(" in source}
    assert called <= set(dir(PROTOCOL))
    assert source.count("super().") == sum(source.count(f"super().{name}(") for name in called)


def test_each_field_of_an_answer_that_is_used_exists() -> None:
    source = inspect.getsource(httptools_impl.RequestResponseCycle.__init__)
    assert {
        name for name in CYCLE_FIELDS if f"self.{name} =" not in source and f"self.{name}:" not in source
    } == set()


@pytest.mark.parametrize("name", ["startup", "shutdown", "handle_exit", "on_tick"])
def test_each_method_of_the_server_that_is_overridden_or_relied_on_exists(name: str) -> None:
    theirs = getattr(uvicorn.Server, name)
    ours = getattr(_Server, name)
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)


def test_the_parts_of_the_compiler_that_are_used_exist() -> None:
    for owner, names in (
        (caching, ("FunctionCache", "_CacheLocator", "CompileResultCacheImpl")),
        (
            codegen.JITCodeLibrary,
            ("_optimize_final_module", "_finalize_final_module", "_get_module_for_linking"),
        ),
        (compiler, ("Compiler", "CompileResult")),
        (sigutils, ("normalize_signature",)),
    ):
        assert [name for name in names if not hasattr(owner, name)] == []


def test_the_exporter_of_spans_has_what_sends_bytes() -> None:
    """Without it spans are encoded by the SDK, at several times the cost."""
    exporter = pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    client = exporter.OTLPSpanExporter()._client
    assert list(inspect.signature(client.export).parameters) == ["data"]
