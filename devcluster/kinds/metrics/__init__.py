"""Kinds of the group metrics.k8s.io."""
