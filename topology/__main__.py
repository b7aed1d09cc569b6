"""`python -m topology` and `coterie-topology`: starts `topology.cli.commands`."""

from __future__ import annotations

from topology.cli.commands import main

__all__ = ["main"]


if __name__ == "__main__":
    main()
