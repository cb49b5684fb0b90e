"""The admin routes, as documented, in memory, for the tests of the client."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

KEY = "the-admin-key"
RESULT = b"".join(b'{"labels":[],"line":%d}\n' % i for i in range(20_000))
CUT_AT = 100_000
"""The number of bytes after which the first download of a result breaks off."""


def refusal(status: int, code: str, detail: str) -> Response:
    problem = {"code": code, "detail": detail, "status": status}
    return JSONResponse(problem, status, media_type="application/problem+json")


def with_key(
    answer: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that refuses requests without the key."""

    async def endpoint(request: Request) -> Response:
        if request.headers.get("authorization") == f"Bearer {KEY}":
            return await answer(request)
        return refusal(401, "unauthorized", "expected the admin key")

    return endpoint


class StubService:
    """The service: jobs succeed when they were read three times; files are a dictionary.

    seen  requests of other routes: (method, path, JSON of the body)
    """

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.submitted: dict[str, str] = {}
        self.files: dict[str, bytes] = {}
        self.seen: list[tuple[str, str, Any]] = []
        self.n_results = 0
        self.archive = b"an archive" * 1000

    def app(self) -> Starlette:
        """Return the application."""
        routes = {
            "{kind}-jobs": self.submit,
            "jobs": self.list_jobs,
            "jobs/{id}": self.job,
            "jobs/{id}/retry": self.retry,
            "jobs/{id}/log": self.log,
            "jobs/{id}/events": self.events,
            "jobs/{id}/result": self.result,
            "data": self.list_data,
            "data/{name}": self.data,
            "models/{model}/archive": self.one_archive,
            "{rest:path}": self.anything,
        }
        methods = ["GET", "POST", "PUT", "DELETE"]
        routing_table = [
            Route(f"/v1/admin/{path}", with_key(endpoint), methods=methods)
            for path, endpoint in routes.items()
        ]
        return Starlette(routes=routing_table)

    async def submit(self, request: Request) -> Response:
        fields, key = await request.json(), request.headers["idempotency-key"]
        job_id = self.submitted.setdefault(key, f"job-{len(self.submitted)}")
        reply = {"id": job_id, "kind": request.path_params["kind"], "state": "queued"}
        self.jobs.setdefault(
            job_id, {**reply, "model": fields["model"], "looks": 0, "fields": fields}
        )
        return JSONResponse(reply, 202, {"location": f"/v1/admin/jobs/{job_id}"})

    async def job(self, request: Request) -> Response:
        job = self.jobs.get(request.path_params["id"])
        if job is None:
            return refusal(404, "not-found", "expected a job")
        if request.method == "DELETE":
            job["state"] = "cancelled"
        job["looks"] += 1
        if job["looks"] == 3 and job["state"] == "queued":
            job |= {
                "state": "succeeded",
                "version": 4,
                "promotion": {"promoted": True, "reasons": []},
            }
        progress = {"phase": "train", "done": job["looks"], "total": 3}
        progress |= {"rows_per_second": 1.5, "seconds_left": None}
        return JSONResponse(
            {**job, "progress": progress, "created": "2026-01-01T00:00:00Z", "error": None}
        )

    async def list_jobs(self, request: Request) -> Response:
        conditions = dict(request.query_params)
        return JSONResponse(
            {"jobs": [job for job in self.jobs.values() if conditions.items() <= job.items()]}
        )

    async def retry(self, request: Request) -> Response:
        job = self.jobs[request.path_params["id"]]
        job |= {"state": "queued", "looks": 0}
        return JSONResponse(job, 202)

    async def log(self, request: Request) -> Response:
        return PlainTextResponse("one line\nanother: é\n")

    async def events(self, request: Request) -> Response:
        async def stream() -> AsyncIterator[bytes]:
            for i in range(int(request.headers.get("last-event-id", 0)) + 1, 4):
                yield f'id: {i}\nevent: progress\ndata: {{"done": {i}}}\n\n'.encode()
                await asyncio.sleep(0.01)

        return StreamingResponse(stream(), media_type="text/event-stream")

    async def result(self, request: Request) -> Response:
        self.n_results += 1
        cut = self.n_results == 1

        async def stream() -> AsyncIterator[bytes]:
            yield RESULT[:CUT_AT] if cut else RESULT
            if cut:
                await asyncio.sleep(0.1)
                raise ConnectionAbortedError

        return StreamingResponse(stream(), headers={"content-length": str(len(RESULT))})

    async def list_data(self, request: Request) -> Response:
        return JSONResponse(
            {"files": [{"name": k, "bytes": len(v)} for k, v in self.files.items()]}
        )

    async def data(self, request: Request) -> Response:
        name = request.path_params["name"]
        if request.method == "DELETE":
            del self.files[name]
            return Response(status_code=204)
        self.files[name] = await request.body()
        return JSONResponse({"name": name, "bytes": len(self.files[name])}, 201)

    async def one_archive(self, request: Request) -> Response:
        if request.method == "GET":
            return Response(self.archive, media_type="application/x-tar")
        self.archive = await request.body()
        return JSONResponse({"model": request.path_params["model"], "version": 9}, 201)

    async def anything(self, request: Request) -> Response:
        body = await request.body()
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        self.seen.append((request.method, path, await request.json() if body else None))
        return (
            Response(status_code=204)
            if request.method == "DELETE"
            else JSONResponse({"done": True})
        )


@contextlib.contextmanager
def running(service: StubService) -> Iterator[str]:
    """Run the service on a port of its own; yield its URL."""
    config = uvicorn.Config(service.app(), port=0, log_config=None, lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    deadline = time.monotonic() + 60
    while not server.started:
        assert thread.is_alive() and time.monotonic() < deadline
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
