"""Load plugin classes that are not in-tree: installed under an entry point, or named as "module:Class"."""

from __future__ import annotations

import importlib
from typing import Any

from kubeloop.kube.errors import UserError
from kubeloop.scheduler.config.plugin_args import ARGS_TYPES

ENTRY_POINT_GROUP = "kubeloop.scheduler_plugins"


def load_plugin_class(name: str) -> type[Any]:
    """Return the class of an out-of-tree plugin by its name or "module:Class".

    Raises UserError if there is no such plugin; the hint suggests an in-tree plugin with a similar name.
    """
    if ":" in name:
        return _from_path(name, name)
    from importlib.metadata import entry_points

    for entry_point in entry_points(group=ENTRY_POINT_GROUP):
        if entry_point.name == name:
            return _from_path(name, entry_point.value)
    import difflib

    known = difflib.get_close_matches(name, ARGS_TYPES, n=1)
    raise UserError(
        f"no scheduler plugin named {name!r}",
        hint=f"did you mean {known[0]!r}?"
        if known
        else f"install one that declares the entry point group {ENTRY_POINT_GROUP!r}, or name it 'module:Class'",
    )


def _from_path(name: str, path: str) -> type[Any]:
    module_name, _, attribute = path.partition(":")
    try:
        plugin = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"cannot load the scheduler plugin {name!r}: {error}", hint="check that it is on PYTHONPATH"
        ) from error
    if not isinstance(plugin, type):
        raise UserError(f"the scheduler plugin {name!r} is not a class", hint="use 'module:Class' as its name")
    return plugin
