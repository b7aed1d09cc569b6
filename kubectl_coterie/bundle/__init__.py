"""A support bundle: what is collected, what of it is kept, and the archive.

`collect` reads the cluster; the rest is pure. It holds no secret, no environment but Coterie's own
settings, and no command line of a user's pod.
"""

from kubectl_coterie.bundle.collect import collect
from kubectl_coterie.bundle.contents import Contents, write_archive

__all__ = ["Contents", "collect", "write_archive"]
