"""Allocation of node ports and health check ports for Services.

Source: pkg/registry/core/service/portallocator.
"""

from __future__ import annotations

import random

from kubeloop.devcluster.api import errors
from kubeloop.kube.json_object import JSON

NODE_PORT_RANGE = range(30000, 32768)
RANDOM_TRIES = 64
_INT32 = 1 << 31


class NodePortOperation:
    """Allocation of node ports in one write; a dry run only checks whether a port is allocated.

    Source: pkg/registry/core/service/portallocator/operation.go.
    """

    def __init__(
        self, owners: dict[int, str], rng: random.Random, *, dry_run: bool, ports: range = NODE_PORT_RANGE
    ) -> None:
        self._ports = ports
        self._owners, self._rng, self._dry_run = owners, rng, dry_run
        self._allocated: list[int] = []

    def allocate(self, port: int) -> str:
        """Allocate this port; return why it cannot be allocated, or ""."""
        if port not in self._ports and not self._dry_run:
            first, last = self._ports[0], self._ports[-1]
            return f"provided port is not in the valid range. The range of valid ports is {first}-{last}"
        if port in self._owners or port in self._allocated:
            return "provided port is already allocated"
        self._allocated.append(port)
        return ""

    def allocate_any(self, purpose: str = "a nodePort") -> int:
        """Allocate any free port. Raises StatusError 500, which names `purpose`, if none is free."""
        port = max(self._allocated, default=self._ports.stop) + 1 if self._dry_run else self._any_free(purpose)
        self._allocated.append(port)
        return (port + _INT32) % (2 * _INT32) - _INT32  # a dry run may count beyond the int32 range of the field

    def _any_free(self, purpose: str) -> int:
        for _ in range(RANDOM_TRIES):
            port = self._rng.choice(self._ports)
            if port not in self._owners and port not in self._allocated:
                return port
        free_ports = [port for port in self._ports if port not in self._owners and port not in self._allocated]
        if not free_ports:
            raise errors.internal_error(f"failed to allocate {purpose}: range is full")
        return self._rng.choice(free_ports)


def allocate_health_check_port(spec: JSON, ports: NodePortOperation) -> None:
    requested = spec.get("healthCheckNodePort", 0)
    if not requested:
        spec["healthCheckNodePort"] = ports.allocate_any("a HealthCheck NodePort 0")
    elif problem := ports.allocate(requested):
        raise errors.internal_error(f"failed to allocate requested HealthCheck NodePort {requested}: {problem}")
