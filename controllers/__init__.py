"""Controllers, one package per controller, and `runtime`, which holds the parts that they share.

May import `kubeloop.tracing`, `kubeloop.informers`, `kubeloop.kube` and `kubeloop.cel`; not the scheduler.
"""
