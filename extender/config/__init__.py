"""Settings of the extender and the files that users write for it.

Values with their checks; knows no component that they configure.
"""

from extender.config.load_settings import load_settings
from extender.config.settings import ENV_PREFIX, ExtenderSettings

__all__ = ["ENV_PREFIX", "ExtenderSettings", "load_settings"]
