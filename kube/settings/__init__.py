"""How a program is configured: flag over environment over file over default, by one mechanism.

Knows no setting of its own and starts nothing.
"""

from kube.settings.fields import FieldNames, FileLayout, OtherNames, ProgramSettings, names_of
from kube.settings.load import load_fields
from kube.settings.options import add_options, given_settings, go_booleans

__all__ = [
    "FieldNames",
    "FileLayout",
    "OtherNames",
    "ProgramSettings",
    "add_options",
    "given_settings",
    "go_booleans",
    "load_fields",
    "names_of",
]
