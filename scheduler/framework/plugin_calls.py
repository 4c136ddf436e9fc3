"""Call a plugin and check what it returns: exceptions and wrong types become a Status with the plugin's name."""

from __future__ import annotations

import logging
from typing import Any

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.extension_points import Plugin
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo

log = logging.getLogger(__name__)


def named(status: Status, plugin: str) -> Status:
    """With the name of the plugin, unless it says one."""
    return status if status.plugin else Status(status.code, status.reasons, plugin, status.error)


def raised(plugin: Plugin, error: Exception) -> Status:
    """The status of a plugin that raised."""
    log.error("a scheduler plugin failed", exc_info=error, extra={"plugin": plugin.name})
    return Status(Code.ERROR, (str(error) or type(error).__name__,), plugin.name, error)


def status_of(answer: object) -> Status | None:
    """What a plugin answered, if that is a status. Raises TypeError."""
    if answer is None or isinstance(answer, Status):
        return answer
    raise TypeError(f"answered {type(answer).__name__}, not a Status or None")


def filter_node(plugin: Any, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
    """A rejection, an error that names the plugin, or None."""
    try:
        status: Status | None = plugin.filter(state, pod, node)
        if status is None:
            return None
        status_of(status)
    except Exception as error:
        status = raised(plugin, error)
    if status.code is Code.SUCCESS:
        return None
    if not status.is_rejection:
        text = f'running "{plugin.name}" filter plugin: {status.message}'
        return Status(Code.ERROR, (text,), plugin.name, status.error)
    return named(status, plugin.name)
