"""Archives of images and of folders: the same content makes the same bytes.

It knows tar, gzip and the OCI image layout, and nothing of what the files are for.
"""

from deploy.release.oci.archive import ImageConfig, ImageFile, PlatformImage, write_image
from deploy.release.oci.layers import (
    Entry,
    File,
    Folder,
    Link,
    Packed,
    Tree,
    file_digest,
    folder_tree,
    pack,
)
from deploy.release.oci.platforms import (
    ARCHITECTURES,
    Architecture,
    architecture,
    machine_architecture,
)

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "Entry",
    "File",
    "Folder",
    "ImageConfig",
    "ImageFile",
    "Link",
    "Packed",
    "PlatformImage",
    "Tree",
    "architecture",
    "file_digest",
    "folder_tree",
    "machine_architecture",
    "pack",
    "write_image",
]
