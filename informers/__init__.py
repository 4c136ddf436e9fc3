"""Watching: reflector, store and indexes, shared informer, factory.

May import `kubeloop.kube` alone.
"""
