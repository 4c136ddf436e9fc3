"""Decode the arguments of plugins (`pluginConfig`), for in-tree plugins and for those of users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kubeloop.kube.errors import UserError
from kubeloop.kube.objects.api_types import JSONValue, Struct, without_nulls
from kubeloop.scheduler.config import out_of_tree_plugins
from kubeloop.scheduler.config.plugin_args import ARGS_TYPES, with_defaults
from kubeloop.scheduler.config.validation import validate_args


def args_type(name: str) -> type[Any] | None:
    """Return the Struct of a plugin's arguments; None if it takes any plain JSON. Raises UserError."""
    if name in ARGS_TYPES:
        return ARGS_TYPES[name]
    return getattr(out_of_tree_plugins.load_plugin_class(name), "args_type", None)


def decode_plugin_args(name: str, document: Mapping[str, JSONValue], path: str) -> Any:
    """Return the arguments of a plugin as its Struct, or as plain JSON if it has none. Raises UserError."""
    fields = {key: value for key, value in document.items() if key not in ("apiVersion", "kind")}
    kind = document.get("kind")
    if kind is not None and kind != f"{name}Args":
        raise UserError(
            f"{path}: args for plugin {name} were not of type {name}Args, got {kind}", hint="fix their kind"
        )
    type_ = args_type(name)
    if type_ is None:
        return fields
    known = {field.encode_name for field in msgspec.structs.fields(type_)}
    for key in fields:
        if key not in known:
            raise UserError(
                f'decoding args for plugin {name}: strict decoding error: unknown field "{key}"',
                hint=f"it takes {', '.join(sorted(known)) or 'no arguments'}",
            )
    try:
        args = msgspec.convert(without_nulls(fields), type_)
    except msgspec.ValidationError as error:
        raise UserError(f"decoding args for plugin {name}: {error}", hint=f"see {name}Args") from error
    if isinstance(args, Struct):
        args = with_defaults(args)
    errors = validate_args(name, args, path)
    if errors:
        raise UserError("; ".join(map(str, errors)), hint=f"see {name}Args")
    return args
