"""Composition of one process: controllers, scheduler, tracing, metrics, endpoint, leader election.

Packages and modules

    control_plane/          controllers and scheduler over one client; leader election
    development_cluster/    API server and simulated nodes, in this process or in a separate one
    observation/            watches of `kubeloop observe`
    endpoint/               HTTP endpoint: health, metrics, traces, explanations
    metrics/                Prometheus metrics
    controller_manifests.py  manifests that run custom controllers in a cluster
    manifests.py            reading and applying manifests
    workload_progress.py    progress of workloads
    cluster_explanation.py  explanation of a pending pod in a cluster of another scheduler
    api_server_check.py     check of an API server before a command starts
    process_files.py        files that list the processes of this machine
    signals.py              main program: event loop, SIGINT and SIGTERM
    junit.py                JUnit XML
    logs.py                 log records on stderr
    python_gc.py            short garbage collections
"""
