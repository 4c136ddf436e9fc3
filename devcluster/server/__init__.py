"""The API server process: HTTP, TLS, health, metrics, start-up objects."""
