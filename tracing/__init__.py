"""Tracing: provider set-up, propagation through objects, the pod lifecycle, views of a trace.

May import `kubeloop.informers` and `kubeloop.kube`.
"""
