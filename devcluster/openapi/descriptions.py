"""What the fields of the API mean, in Kubernetes' words: read from the installed client library, held by nobody here.

kubernetes-asyncio, on which kubeloop depends, is generated from Kubernetes' OpenAPI document and carries the
description of each plain field as a docstring. The texts are looked up in its files when somebody asks for OpenAPI; the
library itself is not imported (that takes a second). It has none for whole types and for fields that are objects.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_GETTER = re.compile(r'"""Gets the (\w+) of this \w+\.  # noqa: E501\n\n(.+?)  # noqa: E501\n', re.S)
_JSON_NAME = re.compile(r"^        '(\w+)': '([^']+)',?$", re.M)
_ATTRIBUTE_MAP = re.compile(r"attribute_map = \{(.*?)\n    \}", re.S)
_WORDS = (re.compile(r"(.)([A-Z][a-z]+)"), re.compile(r"([a-z0-9])([A-Z])"))


@cache
def _models() -> Path | None:
    found = find_spec("kubernetes_asyncio")  # of the top level, which imports nothing
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "client" / "models"


def _snake(name: str) -> str:
    for pattern in _WORDS:
        name = pattern.sub(r"\1_\2", name)
    return name.lower()


def _source(type_name: str) -> str:
    """The text of the module with the model of "core/v1.PodSpec"; "" if there is none."""
    folder = _models()
    package, _, name = type_name.rpartition(".")
    group, _, version = package.rpartition("/")
    if folder is None or not version:
        return ""
    for module in (f"{version}_{_snake(name)}", f"{group.partition('.')[0]}_{version}_{_snake(name)}"):
        try:
            return (folder / f"{module}.py").read_text(encoding="utf-8")
        except FileNotFoundError:
            continue
    return ""


def field_descriptions(type_name: str) -> dict[str, str]:
    """Descriptions of a type's fields by JSON name, of those that have one. `type_name` is one of kube.schema's."""
    source = _source(type_name)
    mapped = _ATTRIBUTE_MAP.search(source)
    if mapped is None:
        return {}
    names = dict(_JSON_NAME.findall(mapped[1]))
    return {
        names[attribute]: _text(literal)
        for attribute, literal in _GETTER.findall(source)
        if attribute in names and literal.strip() and not literal.lstrip().startswith(":return:")
    }


def _text(literal: str) -> str:
    """What stands between the quotes of a docstring, as Python reads it."""
    text: str = ast.literal_eval(f'"""{literal.strip()} """')
    return text.rstrip()
