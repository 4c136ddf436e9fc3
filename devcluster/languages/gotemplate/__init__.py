"""Interpreter of Go's text/template with the functions that KWOK registers."""
