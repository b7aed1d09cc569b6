"""What stops an image or a release; each message names the object, its value and the expectation.

ReleaseError
  NotReleasable   the checkout is no release: changed files, no tag, no entry in CHANGELOG.md
  ContentRefused  a file, a download or a package is not what it must be
  StepFailed      a program that a step needs is missing or failed
"""

from __future__ import annotations

__all__ = ["ContentRefused", "NotReleasable", "ReleaseError", "StepFailed"]


class ReleaseError(Exception):
    """The common base; the message is a sentence for people."""


class ContentRefused(ReleaseError):
    """What would go into an image or an archive is not what it must be."""


class NotReleasable(ReleaseError):
    """The checkout is in no state to be released."""


class StepFailed(ReleaseError):
    """A program that a step needs is missing, or failed."""
