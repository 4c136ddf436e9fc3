"""`kubeloop top`: pods, workloads and nodes on a terminal, updated live."""
