"""KubeSchedulerConfiguration and Policy documents: decoding, defaults, validation; arguments of in-tree plugins."""
