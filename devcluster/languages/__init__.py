"""Languages that objects may contain: CEL of policies, Go templates, jq, JSONPath."""
