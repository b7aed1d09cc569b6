"""Rules, PodMonitors and dashboards for Prometheus and Grafana, and what makes the dashboards."""

from deploy.monitoring.dashboards import dashboard_json
from deploy.monitoring.panels import DASHBOARDS

__all__ = ["DASHBOARDS", "dashboard_json"]
