"""Settings of the node plugin: flags, environment, file and defaults.

Values with their checks; starts nothing.
"""

from plugin.config.load_settings import LoadedSettings, load_settings
from plugin.config.settings import ENV_PREFIX, Mode, PluginSettings

__all__ = ["ENV_PREFIX", "LoadedSettings", "Mode", "PluginSettings", "load_settings"]
