"""kubeloop: a Kubernetes controller manager and scheduler in one asyncio process.

The packages `cel`, `kube`, `informers`, `controllers`, `scheduler`, `tracing` and `devcluster` are symlinks to the
top-level folders of the repository; none of them imports the modules below. The rest imports in one direction:

    __main__   entry point of the `kubeloop` command; `python_version` is its first import
    cli        command line: one module per command, and their options
    planning   `kubeloop plan`
    recording  recordings of clusters: format, `kubeloop record`, readers
    testing    clusters inside tests, pytest plugin; recording and testing do not import each other
    manager    controllers in an asyncio program
    process    composition of one process: control plane, HTTP endpoint, metrics, leader election, development cluster

Within `process`, `process.endpoint` imports `process.metrics` and the other modules; `process.metrics` imports none of
them.
"""

__version__ = "0.2.0"
KUBERNETES_VERSION = "v1.36.2"
"""The Kubernetes release whose behaviour kubeloop follows, and with whose binaries it is compared."""
