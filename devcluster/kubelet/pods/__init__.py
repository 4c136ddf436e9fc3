"""Pods on simulated nodes: state, admission, status, containers, resizes and termination."""
