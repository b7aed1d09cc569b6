"""What is installed on a cluster: Coterie's programs, nodes, pods, policies and settings.

Read once for the checks and for a support bundle; judges nothing.
"""

from kubectl_coterie.installation.gather import gather
from kubectl_coterie.installation.programs import Kind, ProgramPod, programs_of
from kubectl_coterie.installation.seen import Seen

__all__ = ["Kind", "ProgramPod", "Seen", "gather", "programs_of"]
