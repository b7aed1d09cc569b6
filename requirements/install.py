"""Install locked requirements into this interpreter's environment: by uv, else by pip.

uv installs in seconds what takes pip a minute, but does not read pip's configuration: the settings
that say where packages come from are passed on. Where uv cannot be installed, or fails, for one
because the index wants a way to log in that uv lacks, pip does the same from the same hashes.

Usage: python requirements/install.py REQUIREMENTS LOCK_WITH_UV
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
ENVIRONMENT = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
}
"""pip's settings and the variables of uv that mean the same; several values are split by spaces."""


def pip_settings() -> dict[str, str]:
    """What pip's files and environment set, by option; the most specific source wins."""
    # With --quiet pip lists nothing.
    listed = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=True)
    settings: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in listed.stdout.splitlines():
        name, _, value = line.partition("=")
        section, _, option = name.rpartition(".")
        if section in settings:
            settings[section][option] = str(ast.literal_eval(value))
    return settings["global"] | settings["install"] | settings[":env:"]


def uv_environment(settings: dict[str, str]) -> dict[str, str]:
    """The environment of uv for these settings of pip; what is set for uv itself stays."""
    found = {
        variable: " ".join(settings[option].split())
        for option, variable in ENVIRONMENT.items()
        if settings.get(option)
    }
    if settings.get("find-links"):
        found["UV_FIND_LINKS"] = ",".join(settings["find-links"].split())
    # pip takes the best match of all indexes; hashes make that safe.
    return {"UV_INDEX_STRATEGY": "unsafe-best-match"} | found | dict(os.environ)


def by_uv(requirements: str, lock: str) -> bool:
    """Whether uv could install them."""
    try:
        subprocess.run([*PIP, "install", "--quiet", "--require-hashes", "-r", lock], check=True)
        settings = pip_settings()
        no_index = ["--no-index"] if settings.get("no-index", "0").lower() in {"1", "true"} else []
        subprocess.run(
            [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable,
             *no_index, "--require-hashes", "-r", requirements],
            check=True, env=uv_environment(settings),
        )  # fmt: skip
    except (subprocess.CalledProcessError, OSError, SyntaxError, ValueError) as error:
        print(f"uv could not install {requirements}: {error}; pip does", file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    if not by_uv(*sys.argv[1:]):
        install = [*PIP, "install", "--quiet", "--require-hashes", "-r", sys.argv[1]]
        subprocess.run(install, check=True)
