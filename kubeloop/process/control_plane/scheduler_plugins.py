"""The plugins of a scheduler that kubeloop runs: those of kube-scheduler, and older ones for Policy documents."""

from __future__ import annotations

from kubeloop.scheduler.framework.profile_plugins import Registry
from kubeloop.scheduler.legacy_policy.plugins import LEGACY_PLUGINS
from kubeloop.scheduler.plugins.registry import IN_TREE_PLUGINS

ALL_PLUGINS: Registry = {**IN_TREE_PLUGINS, **LEGACY_PLUGINS}
