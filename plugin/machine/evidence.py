"""What a support bundle holds of a vendor: the calls of its library, its programs, its files.

Values only; `plugin.record` collects, redacts and writes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

__all__ = ["Argument", "CallLog", "Evidence", "HandleArgument", "LibraryCall", "Memory", "Program"]

S_contra = TypeVar("S_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class HandleArgument:
    """A handle, by its number in the order in which the library gave handles."""

    number: int


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory that the library reads and writes: its bytes before and after the call.

    `handles` has the offset and number of each handle that is in it after the call; the bytes there
    are zero. `uuids` are offsets of UUIDs in binary (16 bytes). `is_text`: characters up to a NUL.
    """

    before: bytes
    after: bytes
    handles: tuple[tuple[int, int], ...] = ()
    uuids: tuple[int, ...] = ()
    is_text: bool = False


Argument = int | str | None | HandleArgument | Memory


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A call of a vendor's library; `code` and `micros` are None where it has not returned.

    `arguments` is None for a function that the library lacks. Until the call returns, memory has
    the same bytes before and after.
    """

    name: str
    arguments: tuple[Argument, ...] | None
    code: int | None = None
    micros: int | None = None


class CallLog(Protocol):
    """The calls since recording began, those under way included, in the order of their start."""

    def calls(self) -> Sequence[LibraryCall]:
        """All calls so far; may be called while others are made."""
        ...


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run: its words, and variables beside our own."""

    words: tuple[str, ...]
    variables: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence(Generic[S_contra]):
    """What to record of a vendor beside a reading, under its section of the settings.

    - `record_calls` records the library's calls while the context lasts.
    - `programs` are run one after another.
    - `dev_root` is where the machine's folder /dev is; `dev_nodes` are patterns of paths in /dev.
    - `proc_files` are patterns of paths in /proc.
    - `identifying_keys` is a pattern, without regard to case, of whole keys whose values identify a
      machine or its users, in lines `key : value` of programs and files.
    """

    record_calls: Callable[[], AbstractContextManager[CallLog]]
    programs: Callable[[S_contra], Sequence[Program]]
    dev_root: Callable[[S_contra], Path]
    dev_nodes: tuple[str, ...]
    proc_files: tuple[str, ...]
    identifying_keys: str
