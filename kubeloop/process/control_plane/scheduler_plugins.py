"""The plugins of a scheduler that kubeloop runs: those of kube-scheduler, and older ones for Policy documents."""

from __future__ import annotations

from collections.abc import Iterable

from kubeloop.scheduler.config.types import Profile
from kubeloop.scheduler.framework.profile_plugins import Registry
from kubeloop.scheduler.plugins.registry import IN_TREE_PLUGINS


def plugins_for(profiles: Iterable[Profile]) -> Registry:
    """Return the in-tree plugins, with those of older schedulers if a profile enables a plugin that is not in-tree."""
    if all(plugin.name in IN_TREE_PLUGINS for profile in profiles for plugin in profile.enabled()):
        return IN_TREE_PLUGINS
    from kubeloop.scheduler.legacy_policy.plugins import ALL_PLUGINS

    return ALL_PLUGINS
