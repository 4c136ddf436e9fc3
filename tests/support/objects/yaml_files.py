"""The YAML files of `tests/support`, read with PyYAML's parser in C where it is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_documents(path: Path) -> list[Any]:
    """Return the documents of a file as `yaml.safe_load_all` does, in a tenth of its time."""
    return list(yaml.load_all(path.read_text(), _LOADER))


def read_document(path: Path) -> Any:
    """Return the only document of a file. Raises ValueError if it has others."""
    (document,) = read_documents(path)
    return document
