"""The development cluster, in this process or in a separate one: API server, simulated nodes, kubeconfig files."""
