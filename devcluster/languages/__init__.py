"""Languages that objects may contain: CEL, Go templates, jq, Go regular expressions, JSONPath."""
