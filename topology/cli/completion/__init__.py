"""Completion of a program's commands, options and values, in bash, zsh and fish.

Scripts and candidates come from one description of the program's parser; it reads no cluster.
"""

from topology.cli.completion.candidates import argument_at, complete
from topology.cli.completion.command import add_completion_command
from topology.cli.completion.described import FILE

__all__ = ["FILE", "add_completion_command", "argument_at", "complete"]
