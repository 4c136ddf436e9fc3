"""Registrations of plugins for events."""

from __future__ import annotations

from kubeloop.scheduler.api import events
from kubeloop.scheduler.queue.queueing_hints import registrations


class Plugin:
    name = "Mine"


def test_plugin_without_registrations_receives_events_of_pod_groups_if_the_gate_is_on():
    for enabled in (True, False):
        registered = registrations([Plugin()], pod_groups=enabled)
        resources = [registration.event.resource for registration in registered]
        assert (events.POD_GROUP in resources) is enabled
        assert events.POD in resources
