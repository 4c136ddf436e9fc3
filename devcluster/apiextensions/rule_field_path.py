"""The fieldPath of a rule in x-kubernetes-validations.

Source: apiextensions-apiserver pkg/apiserver/schema/cel (validation.go, ValidFieldPath).
"""

from __future__ import annotations

import re

from kubeloop.devcluster.apiextensions.structural_schema import Schema, additional_properties_of

_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|[.\[\]]|[^.\[\]]+", re.S)
_ESCAPE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


def field_path(text: str, schema: Schema) -> str | None:
    """Return a fieldPath, .name or ['name'] for fields and map keys, in the form of causes.

    None: it does not refer to a field of the schema.
    """
    tokens, path, at = _TOKEN.findall(text), "", 0
    current: Schema | None = schema
    while at < len(tokens):
        name = "".join(tokens[at + 1 : at + 2])
        if tokens[at] == "[":
            if len(name) < 2 or name[0] != "'" or name[-1] != "'" or tokens[at + 2 : at + 3] != ["]"]:
                return None
            name = re.sub(r"\\(.)", lambda match: _ESCAPE.get(match[1], match[1]), name[1:-1])
            at += 3
        elif tokens[at] == "." and name:
            at += 2
        else:
            return None
        properties = (current or {}).get("properties")
        if properties is not None:
            current = properties.get(name)
            path += f".{name}" if path else name
        else:
            current = additional_properties_of(current or {})[1]
            path += f"[{name}]"
        if current is None:
            return None
    return path
