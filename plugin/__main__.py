"""`python -m plugin` and `coterie-plugin`: starts `plugin.command_line`."""

from __future__ import annotations

from plugin.memory import skip_synchronous_client
from topology.cli.program import needs_extra

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    with needs_extra("coterie-plugin", "plugin"):
        skip_synchronous_client()
        from plugin.command_line import main as run  # noqa: PLC0415 - needs the extra
    run()


if __name__ == "__main__":
    main()
