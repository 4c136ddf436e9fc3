"""Descriptions of API fields, from the installed client library.

kubernetes-asyncio, a dependency of kubeloop, is generated from Kubernetes' OpenAPI document and has the description of
each scalar field as a docstring. The descriptions are extracted from its source files on the first OpenAPI request; the
library is not imported (which takes a second). It has no descriptions of types and of fields that are objects.
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
_WORD_BOUNDARIES = (re.compile(r"(.)([A-Z][a-z]+)"), re.compile(r"([a-z0-9])([A-Z])"))


@cache
def _models_folder() -> Path | None:
    spec = find_spec("kubernetes_asyncio")  # of the top-level package, which is not imported by this
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "client" / "models"


def _snake_case(name: str) -> str:
    for pattern in _WORD_BOUNDARIES:
        name = pattern.sub(r"\1_\2", name)
    return name.lower()


def _model_source(type_name: str) -> str:
    """Return the source of the model module of a type such as "core/v1.PodSpec", or ""."""
    folder = _models_folder()
    package, _, name = type_name.rpartition(".")
    group, _, version = package.rpartition("/")
    if folder is None or not version:
        return ""
    for module in (f"{version}_{_snake_case(name)}", f"{group.partition('.')[0]}_{version}_{_snake_case(name)}"):
        try:
            return (folder / f"{module}.py").read_text(encoding="utf-8")
        except FileNotFoundError:
            continue
    return ""


def field_descriptions(type_name: str) -> dict[str, str]:
    """Return the available descriptions of a type's fields by JSON name. `type_name` is a name of kube.schema."""
    source = _model_source(type_name)
    mapped = _ATTRIBUTE_MAP.search(source)
    if mapped is None:
        return {}
    names = dict(_JSON_NAME.findall(mapped[1]))
    return {
        names[attribute]: _docstring_text(literal)
        for attribute, literal in _GETTER.findall(source)
        if attribute in names and literal.strip() and not literal.lstrip().startswith(":return:")
    }


def _docstring_text(literal: str) -> str:
    """Return the text of a docstring literal."""
    text: str = ast.literal_eval(f'"""{literal.strip()} """')
    return text.rstrip()
