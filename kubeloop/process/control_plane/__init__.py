"""The control plane of one process: controllers, scheduler, leader election, and dumps of their state."""
