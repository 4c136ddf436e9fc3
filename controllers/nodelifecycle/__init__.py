"""Node lifecycle controller: conditions and taints of nodes without heartbeats, and rate-limited evictions per zone."""
