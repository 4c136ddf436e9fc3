"""Decode the arguments of plugins (`pluginConfig`), for in-tree plugins and for those of users."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.objects.api_types import JSONValue, Struct, without_nulls
from kubeloop.kube.user_error import UserError
from kubeloop.scheduler.config import out_of_tree_plugins
from kubeloop.scheduler.config.defaults import API_VERSION
from kubeloop.scheduler.config.plugin_args import ARGS_TYPES, NoArgs, with_defaults
from kubeloop.scheduler.config.validation import validate_args

log = logging.getLogger(__name__)


def args_type(name: str) -> type[Any] | None:
    """Return the Struct of a plugin's arguments; None if it takes any plain JSON. Raises UserError."""
    if name in ARGS_TYPES:
        return ARGS_TYPES[name]
    return getattr(out_of_tree_plugins.load_plugin_class(name), "args_type", None)


def decode_plugin_args(
    name: str,
    document: Mapping[str, JSONValue],
    path: str,
    gates: FeatureGates = DEFAULT_FEATURE_GATES,
    *,
    enabled: bool = True,
) -> Any:
    """Return the arguments of a plugin as its Struct, or as plain JSON if it has none. Raises UserError.

    enabled: False if no extension point of the profile has the plugin. A plugin that does not exist, which
    kube-scheduler reports only if it is enabled, has plain JSON, too.
    """
    fields = {key: value for key, value in document.items() if key not in ("apiVersion", "kind")}
    try:
        type_ = args_type(name)
    except UserError as error:
        if enabled:
            raise
        log.warning(
            "pluginConfig of an unknown plugin", extra={"plugin": name, "error": str(error), "hint": error.hint}
        )
        return fields
    if type_ is None or type_ is NoArgs:
        return fields
    kind, version = document.get("kind", f"{name}Args"), document.get("apiVersion", API_VERSION)
    if version != API_VERSION:
        raise UserError(
            f'decoding args for plugin {name}: no kind "{kind}" is registered for version "{version}"',
            hint=f"use {API_VERSION}",
        )
    if kind != f"{name}Args":
        raise UserError(
            f"{path}: args for plugin {name} were not of type {name}Args, got {kind}", hint="fix their kind"
        )
    try:
        args = msgspec.convert(without_nulls(fields), type_)
    except msgspec.ValidationError as error:
        raise UserError(f"decoding args for plugin {name}: {error}", hint=f"see {name}Args") from error
    unknown = _unknown_fields(fields, args)
    if unknown:
        known = sorted(field.encode_name for field in msgspec.structs.fields(type_))
        listed = ", ".join(f'unknown field "{field}"' for field in unknown)
        raise UserError(
            f"decoding args for plugin {name}: strict decoding error: {listed}", hint=f"it takes {', '.join(known)}"
        )
    if isinstance(args, Struct):
        args = with_defaults(args, gates)
    if name == "NodeResourcesFit" and not enabled:
        return args  # kube-scheduler validates these arguments when it creates the plugin, and others before
    errors = validate_args(name, args, path, gates)
    if errors:
        raise UserError("; ".join(map(str, errors)), hint=f"see {name}Args")
    return args


def _unknown_fields(document: JSONValue, decoded: Any, path: str = "") -> list[str]:
    """Return the paths of the fields in `document` that `decoded`, which was decoded from it, does not have."""
    unknown: list[str] = []
    children: Iterable[tuple[str, JSONValue, Any]] = ()
    if isinstance(decoded, msgspec.Struct) and isinstance(document, dict):
        attributes = {field.encode_name: field.name for field in msgspec.structs.fields(decoded)}
        unknown = [f"{path}{key}" for key in document if key not in attributes]
        children = [
            (f"{path}{key}.", value, getattr(decoded, attributes[key]))
            for key, value in document.items()
            if key in attributes
        ]
    elif isinstance(decoded, tuple) and isinstance(document, list):
        children = [(f"{path[:-1]}[{index}].", *pair) for index, pair in enumerate(zip(document, decoded, strict=True))]
    for child_path, value, member in children:
        unknown += _unknown_fields(value, member, child_path)
    return unknown
