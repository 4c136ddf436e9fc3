"""Validation of kinds of the API groups networking.k8s.io and discovery.k8s.io."""
