"""Settings of the extender and the files that users write for it.

Values with their checks; knows no component that they configure.
"""

from extender.config.settings import CONFIG_VARIABLE, Settings, load_settings

__all__ = ["CONFIG_VARIABLE", "Settings", "load_settings"]
