"""An extender that does nothing: every node passes, every node scores 0.

What it answers: what it costs kube-scheduler to ask any extender at all, so that Coterie's own
share can be told apart. Served exactly as Coterie is; it binds nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from fastapi import FastAPI
from starlette.responses import Response

from benchmarks.bare_server import serve

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["create_trivial"]

_JSON = "application/json"


async def _filter(request: Request) -> Response:
    args = json.loads(await request.body())
    told = {
        "Nodes": None,
        "NodeNames": args["NodeNames"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }
    return Response(json.dumps(told), media_type=_JSON)


async def _prioritize(request: Request) -> Response:
    args = json.loads(await request.body())
    scores = [{"Host": name, "Score": 0} for name in args["NodeNames"]]
    return Response(json.dumps(scores), media_type=_JSON)


async def _ready(_request: Request) -> Response:
    return Response("ok", media_type="text/plain")


def create_trivial() -> FastAPI:
    """Make the application: filter, prioritize and a readiness probe."""
    app = FastAPI(title="trivial", openapi_url=None)
    app.add_route("/filter", _filter, methods=["POST"])
    app.add_route("/prioritize", _prioritize, methods=["POST"])
    app.add_route("/readyz", _ready, methods=["GET"])
    return app


def main(port: Annotated[int, typer.Option(help="TCP port on 127.0.0.1.")]) -> None:
    """Serve until killed."""
    serve(create_trivial(), port)


if __name__ == "__main__":
    typer.run(main)
