"""The verbs of the REST API: get, list, watch, create, update, patch, delete, and subresources."""
