"""The least that an HTTP extender could do: read a body and send the same bytes back.

Shows what uvicorn and the loopback cost alone, so that the extender's latency can be reported as a
ratio within one run. Served exactly as the extender's verbs are.
"""

from __future__ import annotations

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

__all__ = ["create_echo"]


def _echo(call: VerbRequest) -> VerbResponse:
    return VerbResponse(200, call.body or b"")


async def _live(_request: Request) -> Response:
    return Response("ok", media_type="text/plain")


def create_echo() -> ASGIApp:
    """Make the application: every POST to /echo is answered with its own body."""
    app = FastAPI(title="echo", openapi_url=None)
    app.add_route("/livez", _live, methods=["GET"])
    return VerbApp({"/echo": _echo}, app, body_limit_bytes=BODY_LIMIT_BYTES)


def main(port: Annotated[int, typer.Option(help="TCP port on 127.0.0.1.")]) -> None:
    """Serve until killed."""
    serve(create_echo(), port)


if __name__ == "__main__":
    typer.run(main)
