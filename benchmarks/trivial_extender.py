"""An extender that does nothing: every node passes, every node scores 0.

Shows what it costs to call any extender at all, so that Coterie's own share can be separated. It is
served exactly as Coterie is; it binds nothing. `python -m benchmarks.trivial_extender PORT`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

import structlog
import uvloop
from starlette.responses import Response
from starlette.routing import Route, Router

from extender.http.server import Listener, listen, run_until_signal
from extender.http.verbs import verb_route
from extender.protocol import Answer, Outcome, Verb

if TYPE_CHECKING:
    from starlette.requests import Request


__all__ = ["create_trivial"]

BODY_LIMIT_BYTES = 16 * 1024 * 1024
"""More than any request of the benchmarks has."""
_KEEP_ALIVE_S = 120


def _filter(body: bytes | None) -> Answer:
    args = json.loads(body or b"")
    result = {
        "Nodes": None,
        "NodeNames": args["NodeNames"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }
    return Answer(Verb.FILTER, Outcome.OK, json.dumps(result).encode(), 0)


def _prioritize(body: bytes | None) -> Answer:
    args = json.loads(body or b"")
    scores = [{"Host": name, "Score": 0} for name in args["NodeNames"]]
    return Answer(Verb.PRIORITIZE, Outcome.OK, json.dumps(scores).encode(), 0)


async def _ready(_request: Request) -> Response:
    return Response("ok", media_type="text/plain")


def create_trivial() -> Router:
    """Make the application: filter, prioritize and probes."""
    verbs = [
        verb_route(path, call, body_limit_bytes=BODY_LIMIT_BYTES)
        for path, call in (("/filter", _filter), ("/prioritize", _prioritize))
    ]
    return Router([*verbs, *(Route(path, _ready) for path in ("/livez", "/readyz"))])


def main(port: int) -> None:
    """Serve until SIGTERM."""
    one = Listener(create_trivial(), listen("127.0.0.1", port, setting="port"))
    log = structlog.get_logger()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run_until_signal([one], keep_alive_s=_KEEP_ALIVE_S, log=log))


if __name__ == "__main__":
    main(int(sys.argv[1]))
