"""Writes the annotations of our own Node, and only when they change.

Knows the Node's annotations; decides nothing about devices.
"""

from plugin.publish.node_annotator import NodeApi, Publisher, PublisherTools, PublishFault
from plugin.publish.report_loop import Reporting

__all__ = ["NodeApi", "PublishFault", "Publisher", "PublisherTools", "Reporting"]
