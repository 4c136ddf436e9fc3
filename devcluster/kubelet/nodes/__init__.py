"""Simulated nodes: Nodes, leases, and the ResourceSlices of their devices."""
