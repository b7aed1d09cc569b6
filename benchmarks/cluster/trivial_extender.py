"""An extender that does nothing: every node passes, every node scores 0.

Shows what it costs kube-scheduler to call any extender at all, so that Coterie's own share can be
separated. Served exactly as Coterie is; it binds nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from fastapi import FastAPI
from starlette.responses import Response

from benchmarks.speed.bare_server import BODY_LIMIT_BYTES, serve
from extender.http.asgi import VerbApp, VerbResponse

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from extender.http.asgi import VerbRequest

__all__ = ["create_trivial"]


def _filter(call: VerbRequest) -> VerbResponse:
    args = json.loads(call.body or b"")
    result = {
        "Nodes": None,
        "NodeNames": args["NodeNames"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }
    return VerbResponse(200, json.dumps(result).encode())


def _prioritize(call: VerbRequest) -> VerbResponse:
    args = json.loads(call.body or b"")
    scores = [{"Host": name, "Score": 0} for name in args["NodeNames"]]
    return VerbResponse(200, json.dumps(scores).encode())


async def _ready(_request: Request) -> Response:
    return Response("ok", media_type="text/plain")


def create_trivial() -> ASGIApp:
    """Make the application: filter, prioritize and a readiness probe."""
    app = FastAPI(title="trivial", openapi_url=None)
    app.add_route("/readyz", _ready, methods=["GET"])
    calls = {"/filter": _filter, "/prioritize": _prioritize}
    return VerbApp(calls, app, body_limit_bytes=BODY_LIMIT_BYTES)


def main(port: Annotated[int, typer.Option(help="TCP port on 127.0.0.1.")]) -> None:
    """Serve until killed."""
    serve(create_trivial(), port)


if __name__ == "__main__":
    typer.run(main)
