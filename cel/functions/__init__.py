"""Functions of CEL: standard ones, of strings, of lists and sets. `standard_functions` has the table of all."""
