"""kubeloop: a Kubernetes controller manager and scheduler in one asyncio process.

This package is the binary and the public face: command line, composition of one process, leader election, health,
metrics, testing. It may import every room; no room imports it back, except through the names of the rooms themselves
(`kubeloop.kube`, `kubeloop.informers`, ...), which are symlinks to the top-level folders.
"""

__version__ = "0.1.0"
KUBERNETES_VERSION = "v1.36"
"""The Kubernetes release whose behaviour kubeloop follows."""
