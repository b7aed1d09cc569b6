"""The commands, a module each: read what they need, print it.

Each module has `run(given) -> exit code`; what it computes is in functions of values, apart from
what it reads.
"""
