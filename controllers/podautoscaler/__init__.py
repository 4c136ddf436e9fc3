"""HorizontalPodAutoscaler controller: replicas of scalable objects, from metrics."""
