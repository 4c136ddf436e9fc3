"""Functions of CEL: standard ones, of strings, of lists and sets, and those that Kubernetes adds.

`standard_functions` has the table of all. Kubernetes adds URLs, addresses, quantities, versions and formats.
"""
