"""Kubernetes Events: the recorder, and the correlation of similar events before they are sent."""
