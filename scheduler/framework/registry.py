"""Where plugins come from: the default ones, those installed under an entry point, those named "module:Class".

A plugin is a class made as `PluginClass(args, handle)`. Its args are a msgspec Struct: for default plugins the one in
`plugins.registry`, for others the class attribute `args_type`, or plain JSON.
"""

from __future__ import annotations

import importlib
from typing import Any

from kubeloop.kube.errors import UserError
from kubeloop.scheduler.api.extension_points import Plugin
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.plugins.legacy import CLASSIC_PLUGINS
from kubeloop.scheduler.plugins.registry import DEFAULT_PLUGINS

ENTRY_POINT_GROUP = "kubeloop.scheduler_plugins"

_OWN = {**DEFAULT_PLUGINS, **CLASSIC_PLUGINS}


def plugin_class(name: str) -> type[Any]:
    """The class of a plugin that is not a default one, by its name. Raises UserError if there is none."""
    if ":" in name:
        return _from_path(name, name)
    from importlib.metadata import entry_points

    for entry_point in entry_points(group=ENTRY_POINT_GROUP):
        if entry_point.name == name:
            return _from_path(name, entry_point.value)
    import difflib

    known = difflib.get_close_matches(name, _OWN, n=1)
    raise UserError(
        f"no scheduler plugin named {name!r}",
        hint=f"did you mean {known[0]!r}?"
        if known
        else f"install one that declares the entry point group {ENTRY_POINT_GROUP!r}, or name it as 'module:Class'",
    )


def _from_path(name: str, path: str) -> type[Any]:
    module_name, _, attribute = path.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise UserError(f"cannot load the scheduler plugin {name!r}: {error}", hint="is it on PYTHONPATH?") from error
    if not isinstance(found, type):
        raise UserError(f"the scheduler plugin {name!r} is not a class", hint="name it as 'module:Class'")
    return found


def args_type(name: str) -> type[Any] | None:
    """The Struct of a plugin's arguments; None: it takes any plain JSON."""
    if name in _OWN:
        return _OWN[name].args_type
    return getattr(plugin_class(name), "args_type", None)


def make_plugin(name: str, args: Any, handle: Handle) -> Plugin:
    """Raises UserError if there is no such plugin or its constructor fails."""
    if args is None:
        type_ = args_type(name)
        args = type_() if type_ is not None else {}
    try:
        construct = _OWN[name].construct if name in _OWN else plugin_class(name)
        plugin: Plugin = construct(args, handle)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"cannot make the scheduler plugin {name!r}: {error}", hint="see its arguments") from error
    if ":" not in name and plugin.name != name:
        raise UserError(
            f"the scheduler plugin {name!r} calls itself {plugin.name!r}", hint="configure it under that name"
        )
    return plugin
