"""Plugins of a profile: creation by name; order, overrides and required plugins of extension points."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.scheduler.api.extension_points import FilterPlugin, ReservePlugin
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.config.defaults import DEFAULT_PLUGINS
from kubeloop.scheduler.config.plugin_sets import PluginRef, PluginSet
from kubeloop.scheduler.config.types import EXTENSION_POINTS, Profile
from kubeloop.scheduler.framework.profile_plugins import (
    check_points,
    check_profiles,
    create_plugin,
    extends,
    implements,
    plugins_at,
)
from kubeloop.scheduler.legacy_policy.plugins import ALL_PLUGINS


class Filters:
    name = "Filters"

    def filter(self, state: Any, pod: Any, node: Any) -> None: ...


class Both(Filters):
    name = "Both"

    def score(self, state: Any, pod: Any, node: Any) -> int:
        return 0


PLUGINS = {"a": Both(), "b": Both(), "c": Both(), "filters": Filters()}


def order(point: str, multi: str = "", enabled: str = "", disabled: str = "") -> list[str]:
    plugin_set = PluginSet(tuple(PluginRef(name) for name in enabled.split()), tuple(disabled.split()))
    multi_point = PluginSet(tuple(PluginRef(name) for name in multi.split()))
    profile = Profile(multi_point=multi_point, points={point: plugin_set})
    return [ref.name for ref in plugins_at(point, profile, PLUGINS)]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param({"multi": "a b"}, ["a", "b"], id="as in multiPoint"),
        pytest.param({"multi": "a b filters"}, ["a", "b"], id="only plugins that implement the point"),
        pytest.param({"multi": "a b", "enabled": "c"}, ["a", "b", "c"], id="enabled at the point: last"),
        pytest.param({"multi": "a b", "enabled": "b"}, ["b", "a"], id="overridden at the point: first"),
        pytest.param({"multi": "a b c", "disabled": "b"}, ["a", "c"], id="disabled at the point"),
        pytest.param({"multi": "a b", "disabled": "*", "enabled": "c a"}, ["c", "a"], id="all disabled, some enabled"),
    ],
)
def test_order_at_extension_point(arguments, expected):
    assert order("score", **arguments) == expected


def test_plugin_without_the_extension_point_raises():
    with pytest.raises(UserError, match="plugin 'filters' does not extend score plugin"):
        order("score", enabled="filters")


def test_one_queue_sort_and_a_bind_plugin_are_required():
    no_plugins: dict[str, list[PluginRef]] = {point: [] for point in EXTENSION_POINTS}
    with pytest.raises(UserError, match="no queue sort plugin is enabled"):
        check_points(Profile(), no_plugins)
    with pytest.raises(UserError, match="only one queue sort plugin can be enabled"):
        check_points(Profile(), no_plugins | {"queueSort": [PluginRef("a"), PluginRef("b")]})
    with pytest.raises(UserError, match="at least one bind plugin is needed"):
        check_points(Profile(), no_plugins | {"queueSort": [PluginRef("a")]})


def test_plugin_gets_default_arguments(plugin_cluster: Any) -> None:
    created: list[Any] = []

    class Recording:
        name = "NodeResourcesFit"

        def __init__(self, args: Any, handle: Any) -> None:
            created.append((args, handle))

    handle = plugin_cluster()
    create_plugin("NodeResourcesFit", None, handle, {"NodeResourcesFit": Recording})
    assert created == [(plugin_args.NodeResourcesFitArgs(), handle)]


def test_plugin_with_another_name_raises(plugin_cluster: Any) -> None:
    with pytest.raises(UserError, match="the scheduler plugin 'Other' has the name 'NodeName'"):
        create_plugin("Other", {}, plugin_cluster(), {"Other": ALL_PLUGINS["NodeName"]})


def test_registered_names_are_the_plugins_names(plugin_cluster: Any) -> None:
    handle = plugin_cluster()
    for name in ALL_PLUGINS.keys() - {"RequestedToCapacityRatio"}:  # needs arguments
        assert create_plugin(name, None, handle, ALL_PLUGINS).name == name


# The extension points of kube-scheduler's in-tree plugins, as the interfaces of v1.36 define them.
EXTENSION_POINTS_OF = {
    "DefaultBinder": "bind",
    "DefaultPreemption": "preEnqueue postFilter",
    "DynamicResources": "preEnqueue preFilter filter postFilter score reserve preBind",
    "GangScheduling": "preEnqueue permit",
    "ImageLocality": "score",
    "InterPodAffinity": "preFilter filter preScore score",
    "NodeAffinity": "preFilter filter preScore score",
    "NodeDeclaredFeatures": "preFilter filter",
    "NodeName": "filter",
    "NodePorts": "preFilter filter",
    "NodeResourcesBalancedAllocation": "preScore score",
    "NodeResourcesFit": "preFilter filter preScore score placementScore",
    "NodeUnschedulable": "filter",
    "NodeVolumeLimits": "preFilter filter",
    "PodGroupPodsCount": "placementScore",
    "PodTopologySpread": "preFilter filter preScore score",
    "PrioritySort": "queueSort",
    "SchedulingGates": "preEnqueue",
    "TaintToleration": "filter preScore score",
    "TopologyPlacementGenerator": "placementGenerate",
    "VolumeBinding": "preFilter filter preScore score reserve preBind",
    "VolumeRestrictions": "preFilter filter",
    "VolumeZone": "preFilter filter",
}


def profile(name: str = "default-scheduler", **fields: Any) -> Profile:
    return Profile(name, multi_point=PluginSet(DEFAULT_PLUGINS), **fields)


@pytest.mark.parametrize("name", EXTENSION_POINTS_OF)
def test_in_tree_plugin_is_accepted_where_kube_schedulers_is(name):
    for point in EXTENSION_POINTS:
        # as the only plugin where there must be one
        points = {point: PluginSet((PluginRef(name),), ("*",) if point == "queueSort" else ())}
        accepted = point in EXTENSION_POINTS_OF[name].split()
        refused = pytest.raises(UserError, match=f"plugin '{name}' does not extend {point} plugin")
        with contextlib.nullcontext() if accepted else refused:
            check_profiles([profile(points=points)], ALL_PLUGINS)


def test_no_op_points_do_not_run_the_plugin():
    plugin = ALL_PLUGINS["TaintToleration"]
    assert not implements(plugin, "preScore")
    assert implements(plugin, "score")


class OtherSort:
    name = "OtherSort"

    def sort_key(self, queued: Any) -> Any:
        return queued.key


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        pytest.param(
            {"points": {"queueSort": PluginSet((PluginRef("OtherSort"),), ("*",))}},
            'different queue sort plugins for profile "b": "OtherSort", first: "PrioritySort"',
            id="another plugin",
        ),
        pytest.param(
            {"points": {}, "args": {"PrioritySort": {"order": "name"}}},
            'different queue sort plugin args for profile "b"',
            id="other arguments",
        ),
    ],
)
def test_profiles_with_different_queue_sorts_raise(second, problem):
    with pytest.raises(UserError) as error:
        check_profiles([profile("a"), profile("b", **second)], {**ALL_PLUGINS, "OtherSort": OtherSort})
    assert str(error.value) == problem


def test_different_queue_sort_of_multi_point_raises():
    multi_point = PluginSet((PluginRef("OtherSort"), PluginRef("DefaultBinder")))
    profiles = [profile("a"), Profile("b", multi_point=multi_point)]
    with pytest.raises(UserError, match='different queue sort plugins for profile "b"'):
        check_profiles(profiles, {**ALL_PLUGINS, "OtherSort": OtherSort})


def test_negative_score_weight_raises():
    points = {"score": PluginSet((PluginRef("NodeResourcesFit", -4),))}
    with pytest.raises(UserError, match="total score of Score plugins could overflow"):
        check_profiles([profile(points=points)], ALL_PLUGINS)


def test_one_plugin_places_groups():
    points: dict[str, list[PluginRef]] = {point: [] for point in EXTENSION_POINTS}
    points |= {"queueSort": [PluginRef("a")], "bind": [PluginRef("b")], "placementGenerate": [PluginRef("c")]}
    check_points(Profile(), points)
    points["placementGenerate"].append(PluginRef("d"))
    with pytest.raises(UserError, match="at most one placement generate plugin is allowed"):
        check_points(Profile(), points)


@pytest.mark.parametrize(
    ("raised", "message", "hint"),
    [
        pytest.param(UserError("no shape", hint="give one"), "no shape", "give one", id="error for the user"),
        pytest.param(
            KeyError("x"), "cannot create the scheduler plugin 'Mine': 'x'", "check its arguments", id="another error"
        ),
    ],
)
def test_error_of_a_constructor_is_a_user_error(
    raised: Exception, message: str, hint: str, plugin_cluster: Any
) -> None:
    class Mine:
        name = "Mine"

        def __init__(self, args: Any, handle: Any) -> None:
            raise raised

    with pytest.raises(UserError) as error:
        create_plugin("Mine", {}, plugin_cluster(), {"Mine": Mine})
    assert (str(error.value), error.value.hint) == (message, hint)


def test_plugin_extends_a_protocol_if_it_has_all_methods():
    class Half:
        def reserve(self) -> None: ...

    assert [extends(Half, ReservePlugin), extends(Filters(), ReservePlugin)] == [False, False]
    assert [extends(Filters, FilterPlugin), extends(Both(), FilterPlugin)] == [True, True]
