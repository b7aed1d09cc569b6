"""Records a machine into a support bundle, without what identifies it.

Knows the reader and the kernel; knows no pod, no kubelet and no vendor.
"""

from plugin.record.command import record_to

__all__ = ["record_to"]
