"""Images, chart, manifests and the other files of a release, from one commit.

It reads the checkout and knows how its programs start; it imports none of them.
"""

from deploy.release.checkout import Identity, changelog_entry
from deploy.release.commands import ReleaseError
from deploy.release.images import DEBIAN, PROGRAMS, ImageOrder, build_images, machine_architecture

__all__ = [
    "DEBIAN",
    "PROGRAMS",
    "Identity",
    "ImageOrder",
    "ReleaseError",
    "build_images",
    "changelog_entry",
    "machine_architecture",
]
