"""Scheduling: cache, queue, framework, plugins, configuration, the scheduling loop.

May import `kubeloop.tracing`, `kubeloop.informers` and `kubeloop.kube`; not the controllers.
"""
