"""What commands say of the read API's answers: lines of text, made of values alone.

Knows no connection and no clock; names from the cluster are shown as `topology.printable` allows.
"""

from kubectl_coterie.text.capacity import capacity_headline, sparkline
from kubectl_coterie.text.explanation import explanation_lines
from kubectl_coterie.text.group import group_domain, group_limit, group_reason
from kubectl_coterie.text.what_if import what_if_lines
from kubectl_coterie.text.words import (
    count,
    gpu_set,
    limit,
    percent,
    rate,
    when_ended,
)

__all__ = [
    "capacity_headline",
    "count",
    "explanation_lines",
    "gpu_set",
    "group_domain",
    "group_limit",
    "group_reason",
    "limit",
    "percent",
    "rate",
    "sparkline",
    "what_if_lines",
    "when_ended",
]
