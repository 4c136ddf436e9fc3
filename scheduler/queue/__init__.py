"""The scheduling queue: which pod is tried next, and which pods wait for what."""
