"""The plugins of a profile: created by name, and in order at each extension point.

A plugin is a class constructed as `PluginClass(args, handle)`. Its args are a msgspec Struct: for in-tree plugins the
one in `config.plugin_args`, for others the class attribute `args_type`, or plain JSON.
Source: expandMultiPointPlugins and NewFramework of pkg/scheduler/framework/runtime/framework.go, v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kubeloop.kube.errors import UserError
from kubeloop.scheduler.api.extension_points import (
    BindPlugin,
    FilterPlugin,
    FilterRowsPlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
    ScoreRowsPlugin,
)
from kubeloop.scheduler.api.handle import Handle
from kubeloop.scheduler.config import out_of_tree_plugins
from kubeloop.scheduler.config.plugin_config import args_type
from kubeloop.scheduler.config.plugin_sets import PluginRef, PluginSet
from kubeloop.scheduler.config.types import EXTENSION_POINTS, Profile

Registry = Mapping[str, Callable[[Any, Handle], Plugin]]
"""Plugin name -> factory(args, handle). The in-tree ones are `plugins.registry.IN_TREE_PLUGINS`."""

_PROTOCOLS: Mapping[str, tuple[type[Any], ...]] = {
    "preEnqueue": (PreEnqueuePlugin,),
    "queueSort": (QueueSortPlugin,),
    "preFilter": (PreFilterPlugin,),
    "filter": (FilterPlugin, FilterRowsPlugin),
    "postFilter": (PostFilterPlugin,),
    "preScore": (PreScorePlugin,),
    "score": (ScorePlugin, ScoreRowsPlugin),
    "reserve": (ReservePlugin,),
    "permit": (PermitPlugin,),
    "preBind": (PreBindPlugin,),
    "bind": (BindPlugin,),
    "postBind": (PostBindPlugin,),
}
assert tuple(_PROTOCOLS) == EXTENSION_POINTS
_METHODS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    point: tuple(tuple(name for name in dir(protocol) if not name.startswith("_")) for protocol in protocols)
    for point, protocols in _PROTOCOLS.items()
}
"""The methods of each extension point: a plugin needs all methods of one of these. isinstance() checks the same, but
CPython 3.11 computes the protocol's members again in each of the 240 checks of a profile."""


def enabled_plugins(profile: Profile) -> Iterable[PluginRef]:
    """Yield every plugin that the profile enables at some extension point; some more than once."""
    yield from profile.multi_point.enabled
    for plugin_set in profile.points.values():
        yield from plugin_set.enabled


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


def plugins_at(point: str, profile: Profile, plugins: Mapping[str, Plugin]) -> list[PluginRef]:
    """Return the plugins of one extension point in order. Raises UserError for one that does not implement it.

    First the multiPoint plugins that are also enabled at the point (which overrides their entry), then the other
    multiPoint plugins, then those enabled at the point only.
    """
    plugin_set = profile.points.get(point, PluginSet())
    for ref in plugin_set.enabled:
        if not _implements(plugins[ref.name], point):
            raise UserError(
                f"plugin {ref.name!r} does not extend {point} plugin", hint=f"remove it from plugins.{point}"
            )
    everywhere: dict[str, PluginRef] = {}
    if "*" not in plugin_set.disabled:
        for ref in profile.multi_point.enabled:
            if ref.name not in plugin_set.disabled and _implements(plugins[ref.name], point):
                everywhere[ref.name] = ref
    named_at_point = {ref.name for ref in plugin_set.enabled}
    return [
        *(ref for ref in plugin_set.enabled if ref.name in everywhere),
        *(ref for name, ref in everywhere.items() if name not in named_at_point),
        *(ref for ref in plugin_set.enabled if ref.name not in everywhere),
    ]


def _implements(plugin: Plugin, point: str) -> bool:
    return any(all(callable(getattr(plugin, name, None)) for name in names) for names in _METHODS[point])


def check_points(profile: Profile, points: Mapping[str, list[PluginRef]]) -> None:
    """Raise UserError if the profile has no bind plugin, or not exactly one queue sort plugin."""
    sorting = len(points["queueSort"])
    if sorting != 1:
        problem = "only one queue sort plugin can be enabled" if sorting else "no queue sort plugin is enabled"
        raise UserError(
            f"profile {profile.scheduler_name!r}: {problem}", hint="the default queue sort plugin is PrioritySort"
        )
    if not points["bind"]:
        raise UserError(
            f"profile {profile.scheduler_name!r}: at least one bind plugin is needed",
            hint="the default bind plugin is DefaultBinder",
        )
