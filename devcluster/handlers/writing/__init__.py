"""Writes: create, update, patch, apply and delete, with their options."""
