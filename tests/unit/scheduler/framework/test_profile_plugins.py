"""Which plugin runs at which extension point, in which order, with which weight."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.errors import UserError
from kubeloop.scheduler.config.plugin_sets import PluginRef, PluginSet
from kubeloop.scheduler.config.types import EXTENSION_POINTS, Profile
from kubeloop.scheduler.framework.profile_plugins import check_points, plugins_at


class Filters:
    name = "Filters"

    def filter(self, state: Any, pod: Any, node: Any) -> None: ...


class Both(Filters):
    name = "Both"

    def score(self, state: Any, pod: Any, node: Any) -> int:
        return 0


PLUGINS = {"a": Both(), "b": Both(), "c": Both(), "filters": Filters()}


def order(point: str, multi: str = "", enabled: str = "", disabled: str = "") -> list[str]:
    said = PluginSet(tuple(PluginRef(name) for name in enabled.split()), tuple(disabled.split()))
    everywhere = PluginSet(tuple(PluginRef(name) for name in multi.split()))
    profile = Profile(multi_point=everywhere, points={point: said})
    return [ref.name for ref in plugins_at(point, profile, PLUGINS)]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param({"multi": "a b"}, ["a", "b"], id="as everywhere"),
        pytest.param({"multi": "a b filters"}, ["a", "b"], id="only where it is implemented"),
        pytest.param({"multi": "a b", "enabled": "c"}, ["a", "b", "c"], id="what the point adds comes last"),
        pytest.param({"multi": "a b", "enabled": "b"}, ["b", "a"], id="what the point overrides comes first"),
        pytest.param({"multi": "a b c", "disabled": "b"}, ["a", "c"], id="disabled here"),
        pytest.param({"multi": "a b", "disabled": "*", "enabled": "c a"}, ["c", "a"], id="all disabled but these"),
    ],
)
def test_the_order_at_one_point(arguments, expected):
    assert order("score", **arguments) == expected


def test_a_plugin_that_cannot_do_what_is_asked_is_refused():
    with pytest.raises(UserError, match="plugin 'filters' does not extend score plugin"):
        order("score", enabled="filters")


def test_exactly_one_sorts_the_queue_and_somebody_binds():
    nobody: dict[str, list[PluginRef]] = {point: [] for point in EXTENSION_POINTS}
    with pytest.raises(UserError, match="no queue sort plugin is enabled"):
        check_points(Profile(), nobody)
    with pytest.raises(UserError, match="only one queue sort plugin can be enabled"):
        check_points(Profile(), nobody | {"queueSort": [PluginRef("a"), PluginRef("b")]})
    with pytest.raises(UserError, match="at least one bind plugin is needed"):
        check_points(Profile(), nobody | {"queueSort": [PluginRef("a")]})
