"""The least that an HTTP extender could do: read a body and send the same bytes back.

What it answers: what FastAPI, uvicorn and the loopback cost alone, so that the extender's latency
can be told as a ratio within one run. Served exactly as the extender is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from fastapi import FastAPI
from starlette.responses import Response

from benchmarks.bare_server import serve

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["create_echo"]


async def _echo(request: Request) -> Response:
    return Response(await request.body(), media_type="application/json")


async def _live(_request: Request) -> Response:
    return Response("ok", media_type="text/plain")


def create_echo() -> FastAPI:
    """Make the application: every POST to /echo is answered with its own body."""
    app = FastAPI(title="echo", openapi_url=None)
    app.add_route("/echo", _echo, methods=["POST"])
    app.add_route("/livez", _live, methods=["GET"])
    return app


def main(port: Annotated[int, typer.Option(help="TCP port on 127.0.0.1.")]) -> None:
    """Serve until killed."""
    serve(create_echo(), port)


if __name__ == "__main__":
    typer.run(main)
