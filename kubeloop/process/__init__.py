"""Composition of one process: controllers, scheduler, tracing, metrics, endpoint, leader election."""
