"""Reconciling: work queue, controller loop, expectations, slow start, controller references, and the controllers.

May import `kubeloop.tracing`, `kubeloop.informers` and `kubeloop.kube`; not the scheduler.
"""
