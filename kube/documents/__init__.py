"""Texts that people and other programs write, and what is wrong with them in one sentence.

Knows YAML, TOML and pydantic's errors; knows no setting. It lies in `kube` since both programs read
such texts, neither may import the other, and `topology` below may use neither library.
"""

from kube.documents.validation import first_fault
from kube.documents.yaml_toml import as_json, read_toml, read_yaml

__all__ = ["as_json", "first_fault", "read_toml", "read_yaml"]
