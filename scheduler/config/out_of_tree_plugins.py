"""Load plugin classes that are not in-tree: installed under an entry point, or named as "module:Class"."""

from __future__ import annotations

from typing import Any

from kubeloop.kube.class_loading import load_object
from kubeloop.kube.user_error import UserError
from kubeloop.scheduler.config.plugin_args import ARGS_TYPES

ENTRY_POINT_GROUP = "kubeloop.scheduler_plugins"


def load_plugin_class(name: str) -> type[Any]:
    """Return the class of an out-of-tree plugin by its name or "module:Class".

    Raises UserError if there is no such plugin; the hint suggests an in-tree plugin with a similar name.
    """
    plugin = load_object(name, ENTRY_POINT_GROUP, "scheduler plugin", ARGS_TYPES)
    if not isinstance(plugin, type):
        raise UserError(f"the scheduler plugin {name!r} is not a class", hint="use 'module:Class' as its name")
    return plugin
