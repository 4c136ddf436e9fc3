"""The development cluster: API server, storage, admission, simulated nodes.

May import `kubeloop.kube` alone: a server does not lean on the clients it serves.
"""
