"""What makes the dashboards of `deploy/chart/files` for Grafana."""

from deploy.monitoring.dashboards import dashboard_json
from deploy.monitoring.panels import DASHBOARDS

__all__ = ["DASHBOARDS", "dashboard_json"]
