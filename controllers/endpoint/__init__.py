"""Endpoints controller: publishes the addresses of a Service's Pods in an Endpoints object, for old clients."""
