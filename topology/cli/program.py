"""What all programs of this distribution share: their form of help, errors, version and extras.

It loads nothing but the standard library, since every program starts with it.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from topology.printable import printable

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from topology.cli.completion import Offers

__all__ = [
    "EXTENDER_URL",
    "Commands",
    "Parser",
    "add_command",
    "add_completion_command",
    "fail",
    "needs_extra",
    "program_parser",
    "reader_may_leave",
    "version",
]

EXTENDER_URL = "COTERIE_EXTENDER_URL"
"""Variable of `kubectl coterie`, the address of a read API; no setting of the extender, although it
begins as those do."""
_OWN = frozenset({"extender", "kube", "kubectl_coterie", "plugin", "topology"})
_ARGUMENT = re.compile(r"^argument (\S+): ")
_CHOICE = re.compile(r"^(\S+): invalid choice: (.+) \(choose from (.+)\)$", re.DOTALL)

_COLUMN = 16
"""Of what is explained, at least: the longest command with its indentation."""
_LABELS = {"?": "[{}]", "*": "[{} ...]", "+": "{0} [{0} ...]", argparse.PARSER: "{} ..."}
"""How an argument of so many words stands in the line of usage; one of one word as it is."""


_LOADING = """\
For this session, in zsh after compinit:
  source <({program} completion bash)
  source <({program} completion zsh)
  {program} completion fish | source

For every session write it to a file that the shell reads:
  bash  ~/.local/share/bash-completion/completions/{program}
  zsh   _{program} in a folder of $fpath
  fish  ~/.config/fish/completions/{program}.fish"""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Leaves room for the names of commands, which argparse does not count."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog)
        self._action_max_length = _COLUMN


def _no_words(_name: str, _words: Sequence[str]) -> Sequence[str]:
    """What a program offers for completion whose parser knows all."""
    return ()


class Parser(argparse.ArgumentParser):
    """Takes no abbreviated options, and says what is wrong without a page of usage."""

    offers: Offers = staticmethod(_no_words)

    def __init__(self, **options: object) -> None:
        usage = {"allow_abbrev": False, "formatter_class": _Help}
        has_help = options.get("add_help", True)
        super().__init__(**usage | options | {"add_help": False})  # type: ignore[arg-type]  # argparse's own keywords
        if has_help:
            self.add_argument("-h", "--help", action="help", help="Show this help and exit.")

    def parse_args(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride] - as programs call it
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse; of what a command does not know its own help is named, not the program's."""
        if "_ARGCOMPLETE" in os.environ:  # pragma: no cover - the shells' tests start a process
            from topology.cli import completion  # noqa: PLC0415 - only on the tab key

            completion.answer_shell(self, self.offers, os.environ)
        given = argparse.Namespace() if namespace is None else namespace
        unknown = self.parse_known_args(args, given)[1]
        if unknown:
            prog = " ".join(filter(None, (self.prog, getattr(given, "command", None))))
            self.exit(
                2, f"error: unrecognized arguments: {' '.join(unknown)} (see {prog} --help)\n"
            )
        return given

    def error(self, message: str) -> NoReturn:
        """End with exit code 2 and one sentence."""
        said = _ARGUMENT.sub(r"\1: ", message)
        if match := _CHOICE.match(said):
            name, value, choices = match.groups()
            said = f"{name} is {value}, expected one of {choices.replace(chr(39), '')}"
        self.exit(2, f"error: {said} (see {self.prog} --help)\n")

    def format_help(self) -> str:
        """Write the help; its usage names what must be given, and no option beside that."""
        if self.usage is None:
            actions = sorted(self._actions, key=lambda action: not action.option_strings)
            parts = [part for action in actions if (part := _usage_part(action))]
            self.usage = " ".join(["%(prog)s [OPTIONS]", *parts])
        return super().format_help()


Commands: TypeAlias = "argparse._SubParsersAction[Parser]"  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - its only name
"""What `add_subparsers` of a `Parser` returns."""


class _ShowVersion(argparse.Action):
    """Finds the version only where it is wanted, since that takes long."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        sys.stdout.write(f"{parser.prog} {version()}\n")
        parser.exit()


class _PrintScript(argparse.Action):
    """Prints the script and ends, as `--version` does; `const` is the program."""

    def __call__(
        self, parser: argparse.ArgumentParser, _given: object, shell: object, *_: object
    ) -> None:
        from topology.cli import completion  # noqa: PLC0415 - no other command needs it

        sys.stdout.write(completion.script(str(self.const), str(shell)))
        parser.exit()


def program_parser(
    name: str, about: str, *, exit_codes: str, kind: type[Parser] = Parser
) -> Parser:
    """Make a program's parser: what it is for, what its exit says, `--help` and `--version`."""
    parser = kind(prog=name, description=about, epilog=f"Exit codes: {exit_codes}")
    parser.add_argument(
        "--version", action=_ShowVersion, nargs=0, help="Show the version and exit."
    )
    return parser


def add_command(commands: Commands, name: str, about: str, *, more: str = "") -> Parser:
    """Add a command; `about` begins in lower case and has no full stop, as lists of commands do.

    Its own help says the same as a sentence, and `more` below it.
    """
    sentence = f"{about[0].upper()}{about[1:]}."
    return commands.add_parser(
        name, help=about, description=f"{sentence}\n\n{more}" if more else sentence
    )


def add_completion_command(commands: Commands, program: str) -> None:
    """Add `completion SHELL`, which prints what the shell reads and ends the program."""
    about = "print the script that completes this program's commands in a shell"
    more = _LOADING.format(program=program)
    add_command(commands, "completion", about, more=more).add_argument(
        "shell",
        action=_PrintScript,
        const=program,
        choices=("bash", "zsh", "fish"),
        metavar="SHELL",
        help="One of bash, zsh and fish.",
    )


def fail(message: str, code: int) -> NoReturn:
    """End with an exit code and one sentence on standard error."""
    sys.stderr.write(f"error: {printable(message)}\n")
    raise SystemExit(code)


@contextmanager
def reader_may_leave() -> Generator[None]:
    """Write to standard output inside; a reader that leaves, as `head` does, is no error."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter would flush again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def needs_extra(program: str, extra: str) -> Generator[None]:
    """End with a sentence and exit code 1 where imports inside lack a dependency."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in _OWN:
            raise
        said = f"{program} needs its dependencies ({error.name} is not installed): "
        fail(f"{said}in a checkout, pip install '.[{extra}]'", 1)


def version() -> str:
    """Return the version of the installed distribution; `unknown` in a bare folder of sources."""
    from importlib import metadata  # noqa: PLC0415 - takes longer to import than all else here

    try:
        return metadata.version("coterie")
    except metadata.PackageNotFoundError:
        return "unknown"


def _usage_part(action: argparse.Action) -> str:
    """What must or may be given, as the line of usage shows it; an option only where required."""
    label = str(action.metavar or action.dest)
    if action.option_strings:
        return f"{action.option_strings[0]} {label}" if action.required else ""
    return _LABELS.get(str(action.nargs), "{}").format(label)
