"""Validation of kinds of the API group storage.k8s.io."""
