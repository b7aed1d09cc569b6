"""The node plugin's settings as Markdown: those it shares with NVIDIA's plugin, and its own."""

from __future__ import annotations

from kube.settings import names_of
from plugin.config import ENV_PREFIX, PluginSettings
from plugin.nvidia.settings import SAME, NvidiaNames, NvidiaSettings
from tests.docs.settings_table import described, table

INTRODUCTION = (
    f"`log_level: debug` in section `coterie` of the file is `{ENV_PREFIX}LOG_LEVEL=debug` in the "
    "environment and `--log-level debug` as a flag; the other settings alike.\n"
)
NAMES = names_of(PluginSettings)
NO_EFFECT = "read over, with a note in the log: {}"
BESIDE_FLAGS = (
    (
        "`--config-file`",
        f"`{PluginSettings.layout.variable}`",
        "",
        "nothing",
        SAME,
        "Path of the file.",
    ),
    (
        "",
        "",
        "`sharing.timeSlicing`",
        "nothing",
        "same; `rename` and `devices` of a resource are read over, as there",
        "Resources whose devices are given out several times over.",
    ),
    ("", "", "`sharing.mps`", "nothing", "refused: MPS is not served yet", "Sharing by MPS."),
    *(
        ("", "", f"`{key}`", "", NO_EFFECT.format(why), "")
        for key, why in NvidiaSettings.IGNORED_KEYS.items()
    ),
    (
        "",
        "",
        "label `nvidia.com/device-plugin.config`",
        "",
        "not meant: a sidecar of NVIDIA's picks a file by it; give each kind of node its DaemonSet",
        "",
    ),
)
"""What NVIDIA's plugin knows beside what is a setting of ours."""
NVIDIAS = {
    name: names.state
    for name, field in PluginSettings.model_fields.items()
    for names in field.metadata
    if isinstance(names, NvidiaNames)
}
"""How each setting that NVIDIA's plugin has too compares with NVIDIA's."""


def nvidia_section() -> str:
    """Every name of NVIDIA's, with the state of ours."""
    head = ("flag", "environment", "file", "default", "state", "values and meaning")
    rows: list[tuple[str, ...]] = []
    for name, values, default, meaning in described(NvidiaSettings):
        if name not in NVIDIAS:
            continue
        names = NAMES[name]
        rows.append(
            (
                ", ".join(f"`{flag}`" for flag in names.flags),
                ", ".join(f"`{variable}`" for variable in names.env),
                f"`{names.key}`",
                default,
                NVIDIAS[name],
                f"{values}. {meaning}",
            )
        )
    return f"\n{table(head, [*rows, *BESIDE_FLAGS])}\n"


def own_section() -> str:
    """What only Coterie's plugin has; a second variable where there is one."""
    rows: list[tuple[str, ...]] = []
    for name, values, default, meaning in described(PluginSettings):
        if name not in NVIDIAS:
            also = ", ".join(f"`{variable}`" for variable in NAMES[name].env[1:])
            said = f"{meaning} Also {also} in the environment." if also else meaning
            rows.append((f"`{name}`", values, default, said))
    return f"\n{INTRODUCTION}\n{table(('setting', 'values', 'default', 'meaning'), rows)}\n"
