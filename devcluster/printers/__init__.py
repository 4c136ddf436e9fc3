"""Server-side printing: the Tables that `kubectl get` shows."""
