"""Shared parts of simulated nodes and controllers: timers, events, Node objects, node addresses."""
