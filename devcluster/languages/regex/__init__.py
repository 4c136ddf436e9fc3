"""Go (RE2) regular expressions."""
