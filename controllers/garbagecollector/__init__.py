"""Garbage collection by owner references: background, foreground and orphan, as in kube-controller-manager.

`graph` decides from what informers show, without requests; `garbage_collector` sends the requests.
"""

from kubeloop.controllers.garbagecollector.garbage_collector import GarbageCollector

__all__ = ["GarbageCollector"]
