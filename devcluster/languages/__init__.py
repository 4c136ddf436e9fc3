"""Languages that objects may contain: Go templates, jq, JSONPath, and the values of mutation expressions (CEL)."""
