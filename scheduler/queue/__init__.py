"""The scheduling queue: active, backoff and unschedulable pods, nominated pods and queueing hints."""
