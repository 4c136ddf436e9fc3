"""The plugins of a profile: created by name, and in order at each extension point.

A plugin is a class constructed as `PluginClass(args, handle)`. Its args are a msgspec Struct: for in-tree plugins the
one in `config.plugin_args`, for others the class attribute `args_type`, or plain JSON.
Source: expandMultiPointPlugins and NewFramework of pkg/scheduler/framework/runtime/framework.go, v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from kubeloop.kube.user_error import UserError
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.scheduler.api.extension_points import (
    BindPlugin,
    FilterPlugin,
    FilterRowsPlugin,
    PermitPlugin,
    PlacementGeneratePlugin,
    PlacementScorePlugin,
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
    "placementGenerate": (PlacementGeneratePlugin,),
    "placementScore": (PlacementScorePlugin,),
}
"""The protocols of each extension point; a plugin needs all methods of one of these."""
assert tuple(_PROTOCOLS) == EXTENSION_POINTS

NO_OP_POINTS = "no_op_points"
"""The attribute of an in-tree plugin with the extension points that kube-scheduler's plugin implements in addition, and
where this one has nothing to do. Configurations may enable it there."""


def plugin_class(name: str, registry: Registry) -> Callable[[Any, Handle], Plugin]:
    """Return the class of the plugin `name`. Raises UserError if there is no such plugin."""
    return registry[name] if name in registry else out_of_tree_plugins.load_plugin_class(name)


def create_plugin(name: str, args: Any, handle: Handle, registry: Registry) -> Plugin:
    """Return the plugin `name`. args None: its default arguments.

    Raises UserError if there is no such plugin or its constructor fails.
    """
    if args is None:
        type_ = args_type(name)
        args = type_() if type_ is not None else {}
    try:
        plugin = plugin_class(name, registry)(args, handle)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"cannot create the scheduler plugin {name!r}: {error}", hint="check its arguments") from error
    if ":" not in name and plugin.name != name:
        raise UserError(
            f"the scheduler plugin {name!r} has the name {plugin.name!r}", hint="configure it under that name"
        )
    return plugin


def plugins_at(point: str, profile: Profile, plugins: Mapping[str, object]) -> list[PluginRef]:
    """Return the plugins of one extension point in order. Raises UserError for one that does not implement it.

    plugins: by name, or their classes.

    First the multiPoint plugins that are also enabled at the point (which overrides their entry), then the other
    multiPoint plugins, then those enabled at the point only.
    """
    plugin_set = profile.points.get(point, PluginSet())
    for ref in plugin_set.enabled:
        if not _can_be_enabled(plugins[ref.name], point):
            raise UserError(
                f"plugin {ref.name!r} does not extend {point} plugin", hint=f"remove it from plugins.{point}"
            )
    everywhere: dict[str, PluginRef] = {}
    if "*" not in plugin_set.disabled:
        for ref in profile.multi_point.enabled:
            if ref.name not in plugin_set.disabled and _can_be_enabled(plugins[ref.name], point):
                everywhere[ref.name] = ref
    named_at_point = {ref.name for ref in plugin_set.enabled}
    return [
        *(ref for ref in plugin_set.enabled if ref.name in everywhere),
        *(ref for name, ref in everywhere.items() if name not in named_at_point),
        *(ref for ref in plugin_set.enabled if ref.name not in everywhere),
    ]


def implements(plugin: object, point: str) -> bool:
    """Return True if the plugin, or its class, has the methods of an extension point."""
    return any(extends(plugin, protocol) for protocol in _PROTOCOLS[point])


def extends(plugin: object, protocol: type[Any]) -> bool:
    """Return True if the plugin, or its class, has the methods of a protocol.

    isinstance() checks the same, but CPython 3.11 computes the protocol's members again in each of the 300 checks of a
    profile.
    """
    return all(callable(getattr(plugin, name, None)) for name in _methods(protocol))  # type: ignore[arg-type]


@cache
def _methods(protocol: type[Any]) -> tuple[str, ...]:
    return tuple(name for name in dir(protocol) if not name.startswith("_"))


def _can_be_enabled(plugin: object, point: str) -> bool:
    return implements(plugin, point) or point in getattr(plugin, NO_OP_POINTS, ())


def check_profiles(profiles: Sequence[Profile], registry: Registry) -> None:
    """Raise UserError if a scheduler with these profiles would not start; the plugins are only imported."""
    sorting = {}
    for profile in profiles:
        classes = {ref.name: plugin_class(ref.name, registry) for ref in profile.enabled()}
        points = {point: plugins_at(point, profile, classes) for point in EXTENSION_POINTS}
        check_points(profile, points)
        if any(ref.weight < 0 for ref in (*points["score"], *points["placementScore"])):
            raise UserError(
                f"profile {profile.scheduler_name!r}: total score of Score plugins could overflow",
                hint="the weights of plugins are positive",
            )
        sorting[profile.scheduler_name] = points["queueSort"][0].name
    check_queue_sort(profiles, sorting)


def check_queue_sort(profiles: Sequence[Profile], plugin_of: Mapping[str, str]) -> None:
    """Raise UserError unless all profiles, which share one queue, sort it by the same plugin with the same arguments.

    plugin_of: scheduler name -> queue sort plugin. Source: cfgValidator of pkg/scheduler/profile/profile.go.
    """
    first, hint = profiles[0], "all profiles share one scheduling queue"
    name = plugin_of[first.scheduler_name]
    for profile in profiles[1:]:
        if plugin_of[profile.scheduler_name] != name:
            raise UserError(
                f"different queue sort plugins for profile {quoted(profile.scheduler_name)}: "
                f"{quoted(plugin_of[profile.scheduler_name])}, first: {quoted(name)}",
                hint=hint,
            )
        if profile.args.get(name) != first.args.get(name):
            raise UserError(f"different queue sort plugin args for profile {quoted(profile.scheduler_name)}", hint=hint)


def check_points(profile: Profile, points: Mapping[str, list[PluginRef]]) -> None:
    """Raise UserError without exactly one queue sort plugin, without a bind plugin, or with two that place groups."""
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
    if len(points["placementGenerate"]) > 1:
        raise UserError(
            f"profile {profile.scheduler_name!r}: at most one placement generate plugin is allowed",
            hint="disable the others in plugins.placementGenerate",
        )
