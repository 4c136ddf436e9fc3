"""Reads: get, list and watch, with their options, selectors and pages, and responses with objects."""
