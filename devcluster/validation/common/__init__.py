"""Checks that the validation of several kinds shares."""
