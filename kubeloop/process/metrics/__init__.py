"""Prometheus metrics of one process: registry, controllers, scheduler, client requests, traces, event loop lag."""
