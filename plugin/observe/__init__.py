"""Log lines, metrics and the health endpoint of the node plugin.

Only observes: no part of the plugin depends on what is recorded here.
"""

from plugin.observe.endpoint import StatusEndpoint, serving
from plugin.observe.metrics import PluginMetrics
from plugin.observe.reading_json import reading_text
from plugin.observe.telemetry import Telemetry

__all__ = ["PluginMetrics", "StatusEndpoint", "Telemetry", "reading_text", "serving"]
