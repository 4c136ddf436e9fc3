"""Plugin sets: which plugins a profile enables and disables at an extension point."""

from __future__ import annotations

import msgspec


class PluginRef(msgspec.Struct, frozen=True):
    """A plugin by name; weight counts for scoring alone, 0 stands for the default of 1."""

    name: str
    weight: int = 0


class PluginSet(msgspec.Struct, frozen=True):
    """What a profile says of one extension point. A disabled "*" disables all that are on by default there."""

    enabled: tuple[PluginRef, ...] = ()
    disabled: tuple[str, ...] = ()


def merge_plugin_sets(default: PluginSet, custom: PluginSet) -> PluginSet:
    """Default plugins without the disabled ones, re-configured ones in their place, then what is new.

    Source: mergePluginSet of default_plugins.go.
    """
    disabled = (*custom.disabled, *default.disabled)
    by_name = {ref.name: ref for ref in custom.enabled}
    kept = [] if "*" in disabled else [ref for ref in default.enabled if ref.name not in disabled]
    replaced = {ref.name for ref in kept if ref.name in by_name}
    enabled = [by_name.get(ref.name, ref) for ref in kept]
    enabled += [ref for ref in custom.enabled if ref.name not in replaced]
    return PluginSet(tuple(enabled), disabled)
