"""Are the components of the cluster well? Nobody keeps it: they are asked when somebody wants to know.

May import the standard library only: the registry declares these objects.
Source: pkg/registry/core/componentstatus of v1.36, which asks scheduler and controller manager at their usual ports.
"""

from __future__ import annotations

import socket

from kubeloop.kube.json_object import JSON

_ASKED = {"controller-manager": 10257, "scheduler": 10259}
_WAIT_SECONDS = 0.1  # of loopback, where somebody answers at once or nobody does


def component_statuses() -> list[JSON]:
    """The ComponentStatuses, by name. The store, this process's own, is well whenever somebody can ask."""
    return [
        _status("controller-manager", *_heard_of("controller-manager")),
        _status("etcd-0", "True", "ok"),
        _status("scheduler", *_heard_of("scheduler")),
    ]


def _status(name: str, status: str, message: str) -> JSON:
    conditions = [{"type": "Healthy", "status": status, "message": message}]
    return {"kind": "ComponentStatus", "apiVersion": "v1", "metadata": {"name": name}, "conditions": conditions}


def _heard_of(component: str) -> tuple[str, str]:
    """Does somebody listen where this component would?"""
    address = f"127.0.0.1:{_ASKED[component]}"
    try:
        socket.create_connection(("127.0.0.1", _ASKED[component]), _WAIT_SECONDS).close()
    except OSError as error:
        why = "connection refused" if isinstance(error, ConnectionRefusedError) else "i/o timeout"
        return "False", f'Get "https://{address}/healthz": dial tcp {address}: connect: {why}'
    return "True", "ok"
