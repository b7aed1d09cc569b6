"""What is wrong with an installation, and what to do: a function for each check.

Pure: each looks at what was read (`kubectl_coterie.installation`) and reads nothing itself.
"""

from kubectl_coterie.check.findings import Finding, Status, findings_json
from kubectl_coterie.check.run_checks import run_checks

__all__ = ["Finding", "Status", "findings_json", "run_checks"]
