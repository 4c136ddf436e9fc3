"""CEL environment of admission policies: for their evaluation in the API server, and for type checking."""
