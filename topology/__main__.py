"""Entry point of `python -m topology`; see `topology.cli`."""

from topology.cli import main

if __name__ == "__main__":
    main()
