"""Disruption controller: the status of PodDisruptionBudgets."""
