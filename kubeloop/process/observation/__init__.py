"""`kubeloop observe` in one process: watches of the cluster's pods, events and nodes, owners, tracing."""
