"""The ReplicaSet controller, which also reconciles ReplicationControllers."""
