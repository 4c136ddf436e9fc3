"""What templates make: one YAML document."""

from __future__ import annotations

from typing import Any

import yaml


class _YamlLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # written in C, where there is one
    """Reads times as text, as Kubernetes does."""


_YamlLoader.yaml_implicit_resolvers = {
    sign: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for sign, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_document(text: str) -> Any:
    """Raises yaml.YAMLError."""
    return yaml.load(text, Loader=_YamlLoader)
