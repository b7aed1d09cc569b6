"""What-if of the read API: its question as JSON, and the answer.

Knows the JSON and the pauses; what would happen is decided in `extender.what_if`.
"""

from extender.read_api.what_if.bodies import WhatIfAnswer, WhatIfBody
from extender.read_api.what_if.runner import MAX_WAITING, WhatIfs

__all__ = ["MAX_WAITING", "WhatIfAnswer", "WhatIfBody", "WhatIfs"]
