"""Texts that people and other programs write, and what is wrong with them in one sentence.

Knows YAML, TOML and pydantic's errors; knows no setting.
"""

from kube.documents.validation import first_fault
from kube.documents.yaml_toml import as_json, read_toml, read_yaml, read_yaml_documents

__all__ = ["as_json", "first_fault", "read_toml", "read_yaml", "read_yaml_documents"]
