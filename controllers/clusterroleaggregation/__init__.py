"""ClusterRole aggregation: the rules of ClusterRoles that collect those of others by label."""
