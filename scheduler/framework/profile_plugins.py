"""Which plugins of a profile run at which extension point, in which order.

Source: expandMultiPointPlugins and NewFramework of pkg/scheduler/framework/runtime/framework.go, v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
from kubeloop.scheduler.config.plugin_sets import PluginRef, PluginSet
from kubeloop.scheduler.config.types import EXTENSION_POINTS, Profile

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
"""What a plugin must have for a point: all methods of one of these. isinstance() asks the same, but CPython 3.11 works
it out anew for each of the 240 questions of a profile."""


def named_in(profile: Profile) -> Iterable[PluginRef]:
    """Every plugin the profile enables somewhere; some more than once."""
    yield from profile.multi_point.enabled
    for said in profile.points.values():
        yield from said.enabled


def refs_at(point: str, profile: Profile, plugins: Mapping[str, Plugin]) -> list[PluginRef]:
    """The plugins of one extension point in order. Raises UserError for one that does not implement it.

    First those named at the point that are on everywhere, too (they override that), then the others that are on
    everywhere, then those named at the point alone.
    """
    said = profile.points.get(point, PluginSet())
    for ref in said.enabled:
        if not _implements(plugins[ref.name], point):
            raise UserError(
                f"plugin {ref.name!r} does not extend {point} plugin", hint=f"take it out of plugins.{point}"
            )
    everywhere: dict[str, PluginRef] = {}
    if "*" not in said.disabled:
        for ref in profile.multi_point.enabled:
            if ref.name not in said.disabled and _implements(plugins[ref.name], point):
                everywhere[ref.name] = ref
    named = {ref.name for ref in said.enabled}
    return [
        *(ref for ref in said.enabled if ref.name in everywhere),
        *(ref for name, ref in everywhere.items() if name not in named),
        *(ref for ref in said.enabled if ref.name not in everywhere),
    ]


def _implements(plugin: Plugin, point: str) -> bool:
    return any(all(callable(getattr(plugin, name, None)) for name in names) for names in _METHODS[point])


def check_points(profile: Profile, points: Mapping[str, list[PluginRef]]) -> None:
    """Raises UserError if nobody sorts the queue or binds, or if several sort."""
    sorting = len(points["queueSort"])
    if sorting != 1:
        problem = "only one queue sort plugin can be enabled" if sorting else "no queue sort plugin is enabled"
        raise UserError(
            f"profile {profile.scheduler_name!r}: {problem}", hint="PrioritySort is the one that is on by default"
        )
    if not points["bind"]:
        raise UserError(
            f"profile {profile.scheduler_name!r}: at least one bind plugin is needed",
            hint="DefaultBinder is the one that is on by default",
        )
