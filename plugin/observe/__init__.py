"""Log lines, metrics and the health endpoint of the agent.

Only observes: nothing depends on what is recorded here.
"""

from plugin.observe.endpoint import Endpoint, serving
from plugin.observe.metrics import Metrics
from plugin.observe.reading_json import reading_text
from plugin.observe.telemetry import Logger, Witness

__all__ = ["Endpoint", "Logger", "Metrics", "Witness", "reading_text", "serving"]
