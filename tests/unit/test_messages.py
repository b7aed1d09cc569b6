"""Messages: each says what was expected, in one line that a log or an Event can carry."""

from __future__ import annotations

import re

from tests.messages import message_files, read_messages

SAYS_WHAT_IS_EXPECTED = re.compile(
    r"expected|given twice|\b(?:not?) (?:JSON|TOML)\b|holds no|holds matrices of different"
    r"|has no complete|which holds|without a user"
)
"""The word itself, or what is missing."""
LONGEST = 600
"""Characters. An Event's message has 1,024 at most, with the pod's names."""


def test_each_message_names_what_was_expected():
    """Who reads it must know what to write instead."""
    files = message_files()
    assert files
    for path in files:
        silent = {
            test: text
            for test, text in read_messages(path).items()
            if not SAYS_WHAT_IS_EXPECTED.search(text)
        }
        assert not silent


def test_each_message_is_one_line_of_bounded_length():
    """A wrong value may be long and may hold anything; the message is cut and quoted."""
    for path in message_files():
        for test, text in read_messages(path).items():
            assert len(text) <= LONGEST, test
            assert text.isprintable(), test
