"""The vendor whose GPUs the plugin serves: the only module that names a vendor's folder.

Such a folder exports `VENDOR`, a `plugin.machine.Vendor`, and `VendorSettings`, its section of the
settings (a `kube.settings.ProgramSettings`). Beside the vendor's own fields that section has what
the plugin reads of any vendor's:

- the fields `kubelet_socket`, `fail_on_init_error` and `shared_devices_allocation_policy`;
- `SERVING_ONLY`, the fields that have no effect where no device is served; `IGNORED_KEYS`, the keys
  of the file that are skipped, each with the reason; `RAW_KEYS`, those for `Vendor.read_sharing`;
- `check_together`, which raises `SettingsError` where its settings contradict each other, and
  `notes`, about those that have no effect.
"""

from plugin.nvidia import VENDOR
from plugin.nvidia import NvidiaSettings as VendorSettings

__all__ = ["VENDOR", "VendorSettings"]
