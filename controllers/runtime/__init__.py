"""What every controller shares: work queue, rate limiter, controller loop, expectations, slow start, ownership.

May import `kubeloop.tracing`, `kubeloop.informers` and `kubeloop.kube`; not the controllers themselves.
"""
