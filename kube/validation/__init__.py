"""Checks of values and their error messages: names, formats of strings, errors of a field."""
