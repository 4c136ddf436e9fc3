"""Costs of CEL expressions: the maximum before one runs, and those of calls while it runs."""
