"""Entry point of `python -m topology`; see `topology.cli.commands`."""

from topology.cli.commands import main

if __name__ == "__main__":
    main()
