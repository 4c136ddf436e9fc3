"""Create plugins by name, from a registry of in-tree plugins or from a class of the user's.

A plugin is a class constructed as `PluginClass(args, handle)`. Its args are a msgspec Struct: for in-tree plugins the
one in `config.plugin_args`, for others the class attribute `args_type`, or plain JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kubeloop.kube.errors import UserError
from kubeloop.scheduler.api.extension_points import Plugin
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.config import out_of_tree_plugins
from kubeloop.scheduler.config.plugin_config import args_type

Registry = Mapping[str, Callable[[Any, Handle], Plugin]]
"""Plugin name -> factory(args, handle). The in-tree ones are `plugins.registry.IN_TREE_PLUGINS`."""


def create_plugin(name: str, args: Any, handle: Handle, registry: Registry) -> Plugin:
    """Return the plugin `name`. args None: its default arguments.

    Raises UserError if there is no such plugin or its constructor fails.
    """
    if args is None:
        type_ = args_type(name)
        args = type_() if type_ is not None else {}
    try:
        construct = registry[name] if name in registry else out_of_tree_plugins.load_plugin_class(name)
        plugin: Plugin = construct(args, handle)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"cannot create the scheduler plugin {name!r}: {error}", hint="check its arguments") from error
    if ":" not in name and plugin.name != name:
        raise UserError(
            f"the scheduler plugin {name!r} has the name {plugin.name!r}", hint="configure it under that name"
        )
    return plugin
