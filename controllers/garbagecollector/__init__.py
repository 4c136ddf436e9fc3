"""Garbage collection by owner references: background, foreground and orphan, as kube-controller-manager does it.

`graph` decides from what informers show, without a request; `controller` talks to the API server.
"""

from kubeloop.controllers.garbagecollector.controller import GarbageCollector

__all__ = ["GarbageCollector"]
