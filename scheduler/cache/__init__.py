"""The scheduler's cache of nodes and pods, and the columnar snapshot that a scheduling cycle reads."""
