"""Settings of the agent: flags, environment, file and defaults.

Values with their checks; starts nothing.
"""

from plugin.config.load_settings import LoadedSettings
from plugin.config.options import go_booleans, takes_settings
from plugin.config.settings import Mode, Settings

__all__ = ["LoadedSettings", "Mode", "Settings", "go_booleans", "takes_settings"]
