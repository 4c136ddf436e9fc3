"""KubeSchedulerConfiguration: reading, defaults, validation."""
