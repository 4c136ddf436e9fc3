"""Aggregated API servers: requests for the group versions of APIServices with a Service are passed on to them.

aggregator.py   which requests are passed on; availability of APIServices
backend.py      connections to one API server, with the identity of the user
documents.py    discovery with the groups of aggregated API servers
"""
