"""Controllers, one package per controller, and `runtime`, which holds the parts that they share.

May import `kubeloop.tracing`, `kubeloop.informers` and `kubeloop.kube`; not the scheduler.
"""
