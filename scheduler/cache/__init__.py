"""What the scheduler knows of nodes and of the pods on them, and the snapshot a cycle reads."""
