"""The admin routes as they are promised, in memory: the client is tested against them."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

KEY = "the-admin-key"
RESULT = b"".join(b'{"labels":[],"line":%d}\n' % i for i in range(20_000))
CUT_AT = 100_000
"""Byte after which the first download of a result breaks off."""


class StubService:
    """Jobs that end when they were looked at three times; files, aliases and keys as dictionaries."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.submitted: dict[str, str] = {}
        self.files: dict[str, bytes] = {}
        self.seen: list[tuple[str, str, Any]] = []
        self.n_results = 0
        self.archive = b"an archive" * 1000

    def app(self) -> Starlette:
        """The application."""
        admin = "/v1/admin"
        model = f"{admin}/models/{{model}}"
        routes = [
            Route(f"{admin}/{{kind}}-jobs", self.submit, methods=["POST"]),
            Route(f"{admin}/jobs", self.list_jobs),
            Route(f"{admin}/jobs/{{id}}", self.job, methods=["GET", "DELETE"]),
            Route(f"{admin}/jobs/{{id}}/retry", self.retry, methods=["POST"]),
            Route(f"{admin}/jobs/{{id}}/log", self.log),
            Route(f"{admin}/jobs/{{id}}/events", self.events),
            Route(f"{admin}/jobs/{{id}}/result", self.result),
            Route(f"{admin}/data", self.list_data),
            Route(f"{admin}/data/{{name}}", self.data, methods=["PUT", "DELETE"]),
            Route(f"{model}/archive", self.one_archive, methods=["GET", "POST"]),
            Route(f"{admin}/{{rest:path}}", self.anything, methods=["GET", "POST", "PUT", "DELETE"]),
            Route(f"{model}/{{rest:path}}", self.anything, methods=["GET", "POST", "PUT", "DELETE"]),
        ]
        return Starlette(routes=routes, exception_handlers={PermissionError: self.refuse})

    def check(self, request: Request) -> None:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            raise PermissionError

    async def refuse(self, request: Request, error: Exception) -> Response:
        problem = {"code": "unauthorized", "detail": "expected the admin key", "status": 401}
        return JSONResponse(problem, 401, media_type="application/problem+json")

    async def submit(self, request: Request) -> Response:
        self.check(request)
        fields, key = await request.json(), request.headers["idempotency-key"]
        job_id = self.submitted.setdefault(key, f"job-{len(self.submitted)}")
        kind = request.path_params["kind"]
        job = {
            "id": job_id,
            "kind": kind,
            "state": "queued",
            "model": fields["model"],
            "looks": 0,
            "fields": fields,
        }
        self.jobs.setdefault(job_id, job)
        head = {"location": f"/v1/admin/jobs/{job_id}"}
        return JSONResponse({"id": job_id, "kind": kind, "state": "queued"}, 202, head)

    async def job(self, request: Request) -> Response:
        self.check(request)
        job = self.jobs.get(request.path_params["id"])
        if job is None:
            problem = {"code": "not-found", "detail": "expected a job", "status": 404}
            return JSONResponse(problem, 404, media_type="application/problem+json")
        if request.method == "DELETE":
            job["state"] = "cancelled"
        job["looks"] += 1
        if job["looks"] == 3 and job["state"] == "queued":
            job |= {"state": "succeeded", "version": 4, "promotion": {"promoted": True, "reasons": []}}
        progress = {
            "phase": "train",
            "done": job["looks"],
            "total": 3,
            "rows_per_second": 1.5,
            "seconds_left": None,
        }
        return JSONResponse({**job, "progress": progress, "created": "2026-01-01T00:00:00Z", "error": None})

    async def list_jobs(self, request: Request) -> Response:
        self.check(request)
        wanted = dict(request.query_params)
        found = [job for job in self.jobs.values() if wanted.items() <= job.items()]
        return JSONResponse({"jobs": found})

    async def retry(self, request: Request) -> Response:
        self.check(request)
        job = self.jobs[request.path_params["id"]]
        job |= {"state": "queued", "looks": 0}
        return JSONResponse(job, 202)

    async def log(self, request: Request) -> Response:
        self.check(request)
        return PlainTextResponse("one line\nanother: é\n")

    async def events(self, request: Request) -> Response:
        self.check(request)

        async def stream() -> AsyncIterator[bytes]:
            for i in range(int(request.headers.get("last-event-id", 0)) + 1, 4):
                yield f'id: {i}\nevent: progress\ndata: {{"done": {i}}}\n\n'.encode()
                await asyncio.sleep(0.01)

        return StreamingResponse(stream(), media_type="text/event-stream")

    async def result(self, request: Request) -> Response:
        self.check(request)
        self.n_results += 1
        cut = self.n_results == 1

        async def stream() -> AsyncIterator[bytes]:
            yield RESULT[:CUT_AT] if cut else RESULT
            if cut:
                await asyncio.sleep(0.1)
                raise ConnectionAbortedError

        return StreamingResponse(stream(), headers={"content-length": str(len(RESULT))})

    async def list_data(self, request: Request) -> Response:
        self.check(request)
        return JSONResponse({"files": [{"name": k, "bytes": len(v)} for k, v in self.files.items()]})

    async def data(self, request: Request) -> Response:
        self.check(request)
        name = request.path_params["name"]
        if request.method == "DELETE":
            del self.files[name]
            return Response(status_code=204)
        self.files[name] = await request.body()
        return JSONResponse({"name": name, "bytes": len(self.files[name])}, 201)

    async def one_archive(self, request: Request) -> Response:
        self.check(request)
        if request.method == "GET":
            return Response(self.archive, media_type="application/x-tar")
        self.archive = await request.body()
        return JSONResponse({"model": request.path_params["model"], "version": 9}, 201)

    async def anything(self, request: Request) -> Response:
        self.check(request)
        body = await request.body()
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        self.seen.append((request.method, path, await request.json() if body else None))
        return Response(status_code=204) if request.method == "DELETE" else JSONResponse({"done": True})


@contextlib.contextmanager
def running(service: StubService) -> Iterator[str]:
    """Serve it on a port of its own; yield the URL."""
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
