"""ComponentStatuses: computed from probes on each read, never stored.

May import `kube.json_object` only: `served_resources` refers to this module.
Source: pkg/registry/core/componentstatus of v1.36, which probes scheduler and controller manager at their usual ports.
"""

from __future__ import annotations

import socket

from kubeloop.kube.json_object import JSON

_PORTS = {"controller-manager": 10257, "scheduler": 10259}
_TIMEOUT_SECONDS = 0.1  # enough on the loopback interface


def component_statuses() -> list[JSON]:
    """Return the ComponentStatuses by name. etcd is this process's own store, so it is always healthy."""
    return [
        _status("controller-manager", *_probe("controller-manager")),
        _status("etcd-0", "True", "ok"),
        _status("scheduler", *_probe("scheduler")),
    ]


def _status(name: str, status: str, message: str) -> JSON:
    conditions = [{"type": "Healthy", "status": status, "message": message}]
    return {"kind": "ComponentStatus", "apiVersion": "v1", "metadata": {"name": name}, "conditions": conditions}


def _probe(component: str) -> tuple[str, str]:
    """Return condition status and message of a component, by connecting to its port."""
    address = f"127.0.0.1:{_PORTS[component]}"
    try:
        socket.create_connection(("127.0.0.1", _PORTS[component]), _TIMEOUT_SECONDS).close()
    except OSError as error:
        reason = "connection refused" if isinstance(error, ConnectionRefusedError) else "i/o timeout"
        return "False", f'Get "https://{address}/healthz": dial tcp {address}: connect: {reason}'
    return "True", "ok"
