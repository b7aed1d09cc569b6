"""A support bundle: what is collected, how names are hashed, and the archive.

`collect` reads the cluster; the rest is pure. It holds no secret, no environment but Coterie's own
settings, and no command line of a user's pod.
"""

from kubectl_coterie.bundle.collect import collect
from kubectl_coterie.bundle.contents import Contents, write_archive
from kubectl_coterie.bundle.name_hashes import NameHashes

__all__ = ["Contents", "NameHashes", "collect", "write_archive"]
