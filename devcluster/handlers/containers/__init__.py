"""Logs of containers and connections to them: exec, attach, port-forward, and the protocols that they use."""
