"""Parts shared by all controllers: work queue, rate limiter, controller loop, expectations, slow start, adoption.

May import `kubeloop.tracing`, `kubeloop.informers` and `kubeloop.kube`; not the packages of single controllers.
"""
