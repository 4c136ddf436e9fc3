"""Pods on simulated nodes: admission, status, and resizes."""
