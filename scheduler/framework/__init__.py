"""The scheduling framework: extension points, and the runtime that calls plugins through them."""
