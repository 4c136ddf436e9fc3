"""Call a plugin and check what it returns: exceptions and wrong types become a Status with the plugin's name."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.extension_points import Plugin
from kubeloop.scheduler.api.status import Code, PluginFailure, Status
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo

log = logging.getLogger(__name__)


class SchedulingError(Exception):
    """A scheduling attempt ended with an error, not with a rejection. The text is that of the event."""

    def __init__(self, message: str, plugin: str = "") -> None:
        super().__init__(message)
        self.plugin = plugin


def aggregated(errors: Sequence[Status]) -> str:
    """Return the different messages of errors: "a", or "[a, b]". Source: NewAggregate of apimachinery."""
    messages = list(dict.fromkeys(error.message for error in errors))
    return messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"


def with_plugin_name(status: Status, plugin: str) -> Status:
    """Return the status with the plugin's name, unless it has one."""
    return status if status.plugin else Status(status.code, status.reasons, plugin, status.error)


def failure(point: str, plugin: Plugin, status: Status) -> Status:
    """Return the plugin's rejection with its name, or an error for any other status at `point`."""
    if status.is_rejection:
        return with_plugin_name(status, plugin.name)
    text = f'running {point} plugin "{plugin.name}": {status.message}'
    return Status(Code.ERROR, (text,), plugin.name, status.error)


def status_of_exception(plugin: Plugin, error: Exception) -> Status:
    """Log the exception of a plugin and return its status."""
    if isinstance(error, PluginFailure):
        log.error("a scheduler plugin failed", extra={"plugin": plugin.name, "error": str(error)})
    else:
        log.error("a scheduler plugin failed", exc_info=error, extra={"plugin": plugin.name})
    return Status(Code.ERROR, (str(error) or type(error).__name__,), plugin.name, error)


def checked_status(result: object) -> Status | None:
    """Return what a plugin returned, if that is a status or None. Raises TypeError."""
    if result is None or isinstance(result, Status):
        return result
    raise TypeError(f"returned {type(result).__name__}, not a Status or None")


def filter_node(plugin: Any, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
    """Run one filter on one node. Returns a rejection, an error that names the plugin, or None if the node passes."""
    try:
        status: Status | None = plugin.filter(state, pod, node)
        if status is None:
            return None
        checked_status(status)
    except Exception as error:
        status = status_of_exception(plugin, error)
    if status.code is Code.SUCCESS:
        return None
    if not status.is_rejection:
        return filter_error(plugin, status)
    return with_plugin_name(status, plugin.name)


def filter_error(plugin: Plugin, status: Status) -> Status:
    """Return the error of a filter with the plugin's name in its message."""
    text = f'running "{plugin.name}" filter plugin: {status.message}'
    return Status(Code.ERROR, (text,), plugin.name, status.error)
