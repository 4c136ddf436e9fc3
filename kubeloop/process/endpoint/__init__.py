"""HTTP endpoint of one process: health checks, metrics, configuration, traces, explanations and scheduler dumps."""
