"""`python -m topology` and `coterie-topology`: starts `topology.cli.commands`."""

from __future__ import annotations

from topology.cli.program import needs_extra

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    with needs_extra("coterie-topology", "cli"):
        from topology.cli.commands import main as run  # noqa: PLC0415 - needs the extra
    run()


if __name__ == "__main__":
    main()
