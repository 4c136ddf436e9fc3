"""What the failures and successes of Pods mean for a Job: failure and success policy, backoff, limits per index."""
