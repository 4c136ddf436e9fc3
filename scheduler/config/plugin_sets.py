"""Plugin sets: which plugins a profile enables and disables at an extension point."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kubeloop.scheduler.config.strict_decoding import StrictStruct

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class PluginRef(StrictStruct, frozen=True):
    """A plugin by name. weight: for scoring; 0 stands for the default of 1."""

    name: str = ""
    weight: Int32 = 0


class PluginSet(msgspec.Struct, frozen=True):
    """Enabled and disabled plugins of one extension point. "*" disables all plugins enabled by default there."""

    enabled: tuple[PluginRef, ...] = ()
    disabled: tuple[str, ...] = ()


def merge_plugin_sets(default: PluginSet, custom: PluginSet) -> PluginSet:
    """Return the default plugins with a profile's changes: overridden plugins keep their place, new ones come last.

    Source: mergePluginSet of default_plugins.go.
    """
    disabled = (*custom.disabled, *default.disabled)
    index_of = {ref.name: index for index, ref in enumerate(custom.enabled)}
    remaining = [] if "*" in disabled else [ref for ref in default.enabled if ref.name not in disabled]
    replacing = {index_of[ref.name] for ref in remaining if ref.name in index_of}
    enabled = [custom.enabled[index_of[ref.name]] if ref.name in index_of else ref for ref in remaining]
    # A plugin that is listed twice stays twice: validation reports it.
    enabled += [ref for index, ref in enumerate(custom.enabled) if index not in replacing]
    return PluginSet(tuple(enabled), disabled)
