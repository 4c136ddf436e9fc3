"""Kubernetes vocabulary: objects, quantities, selectors, resources, the API client, the event recorder.

The lowest room: imports no other room of kubeloop.
"""
