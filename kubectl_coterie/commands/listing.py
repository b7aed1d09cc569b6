"""Lists of objects: printed once, or for as long as something changes.

A command that lists says what is in its list (`Listing`); the rest is the same for all of them. As
kubectl's: a table, the objects as JSON or YAML, or their names; with `--watch` an object again when
it has changed. Objects that are gone are not printed.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote as url_quote

from kubectl_coterie.commands.session_of import output_of, session_of
from kubectl_coterie.errors import CliError
from topology.errors import quote
from topology.model import object_at, text_at

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence

    from kubectl_coterie.cluster import ReadApiClient, Session
    from kubectl_coterie.cluster.read_api import Json
    from kubectl_coterie.terminal import Output, Table

__all__ = [
    "Listing",
    "labelled",
    "named",
    "none_found",
    "require_named",
    "require_node",
    "run_list",
]


@dataclass(frozen=True, slots=True)
class Listing:
    """A list: its objects, their table, what `-o name` prints, and what to say of none.

    `key` tells objects apart where names do not; `headline` is a sentence above the table, of what
    was read last. `check` raises `CliError` where an option names what is not there; it is asked
    once, of the first objects: what goes while one watches was no mistake.
    """

    read: Callable[[], Awaitable[Sequence[Json]]]
    table: Table[Json]
    name: Callable[[Json], str]
    none: str
    key: Callable[[Json], Hashable] | None = None
    headline: Callable[[], str] | None = None
    check: Callable[[Sequence[Json]], Awaitable[None]] | None = None


def run_list(
    given: Namespace, listing_of: Callable[[Namespace, Session, ReadApiClient, Output], Listing]
) -> int:
    """Print the list, and with `--watch` what changes, until the stream ends.

    `listing_of` makes the list of the command's options, its session, the read API and where it
    prints. Raises `CliError`.
    """
    asyncio.run(_list(given, listing_of))
    return 0


async def _list(
    given: Namespace, listing_of: Callable[[Namespace, Session, ReadApiClient, Output], Listing]
) -> None:
    output = output_of(given)
    async with session_of(given) as session:
        api = await session.read_api()
        await _list_and_watch(listing_of(given, session, api, output), given, api, output)


async def _list_and_watch(
    listing: Listing, given: Namespace, api: ReadApiClient, output: Output
) -> None:
    first = await listing.read()
    if listing.check is not None:
        await listing.check(first)
    rows = listing.table.sorted(first, given.sort_by)
    if not rows and not output.is_data:
        sys.stderr.write(f"{listing.none}\n")
    _print(listing, rows, output, has_header=bool(rows))
    if not given.watch:
        return
    key = listing.key or listing.name
    shown, is_begun = {key(row): row for row in rows}, bool(rows)
    async for _ in api.changes():
        now = await listing.read()
        changed = [row for row in now if shown.get(key(row)) != row]
        shown = {key(row): row for row in now}
        if changed:
            changed = listing.table.sorted(changed, given.sort_by)
            _print(listing, changed, output, has_header=not is_begun)
            is_begun = True
    sys.stderr.write("The extender ended the stream of changes: it stops or restarts.\n")


def _print(listing: Listing, rows: Sequence[Json], output: Output, *, has_header: bool) -> None:
    if output.is_data:
        output.data({"items": list(rows)})
    else:
        if listing.headline is not None and output.has_header and output.form != "name":
            output.print(listing.headline())
        output.rows(listing.table, rows, listing.name, has_header=has_header)


def none_found(what: str, namespace: str | None) -> str:
    """What to say of an empty list; `namespace` is None for all of them."""
    return f"No {what}{'' if namespace is None else f' in namespace {namespace}'}."


def named(rows: Iterable[Json], names: Sequence[str]) -> list[Json]:
    """The objects of these names, all where none is named."""
    return [row for row in rows if not names or row["name"] in names]


def require_named(kind: str, rows: Iterable[Json], names: Sequence[str]) -> None:
    """Raise `CliError` for a name that none of the objects has."""
    missing = set(names).difference(row["name"] for row in rows)
    if missing:
        msg = (
            f"{kind} {quote(min(missing))} is not known to the extender, or not listed with these "
            f"options; `kubectl coterie {kind}s` lists those that are"
        )
        raise CliError(msg)


async def require_node(api: ReadApiClient, name: str) -> None:
    """Raise `CliError` for `--node` with a name of no node, which an empty list would hide."""
    if await api.find(f"nodes/{url_quote(name, safe='')}") is None:
        msg = (
            f"--node is {quote(name)}, expected the name of a node that the extender knows; "
            "`kubectl coterie nodes` lists GPU nodes"
        )
        raise CliError(msg)


async def labelled(
    session: Session, resource: str, selector: str, namespace: str | None = None
) -> set[tuple[str, str]]:
    """Namespace and name of the objects with these labels, as the API server selects them.

    Raises `CliError`.
    """
    place = "" if namespace is None else f"/namespaces/{url_quote(namespace, safe='')}"
    found = await session.list_objects(f"/api/v1{place}/{resource}", {"labelSelector": selector})
    metadata = [object_at(one, "metadata") for one in found]
    return {(text_at(one, "namespace"), text_at(one, "name")) for one in metadata}
