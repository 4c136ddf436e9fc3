"""Containers of simulated pods: images, configuration, commands, probes, restarts, and configured answers."""
