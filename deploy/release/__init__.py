"""Images, chart, manifests and the other files of a release, the same bytes from the same commit.

It reads the checkout and knows how its programs start; it imports none of them.
"""

from deploy.release.checkout import Identity, changelog_entry, identify
from deploy.release.errors import ContentRefused, NotReleasable, ReleaseError, StepFailed
from deploy.release.images import IMAGES, BuiltImage, ImageOrder, build_images
from deploy.release.release import make_release

__all__ = [
    "IMAGES",
    "BuiltImage",
    "ContentRefused",
    "Identity",
    "ImageOrder",
    "NotReleasable",
    "ReleaseError",
    "StepFailed",
    "build_images",
    "changelog_entry",
    "identify",
    "make_release",
]
