"""Go text/template with the functions that KWOK registers."""
