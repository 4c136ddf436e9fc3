"""Effects of failed and succeeded Pods on a Job: failure and success policy, backoff, limits per index."""
