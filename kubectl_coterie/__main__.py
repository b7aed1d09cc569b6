"""`kubectl-coterie`, which kubectl runs as `kubectl coterie`: starts the command line.

`complete` is `kubectl_complete-coterie`, which kubectl runs for the words to complete
(k8s.io/kubectl v0.36, pkg/cmd/plugin_completion.go).
"""

from __future__ import annotations

from kubectl_coterie.command_line import complete, main

__all__ = ["complete", "main"]


if __name__ == "__main__":
    main()
