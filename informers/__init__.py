"""Informers: reflector, store and indexes, shared informer, factory.

May import `kubeloop.kube` only.
"""
