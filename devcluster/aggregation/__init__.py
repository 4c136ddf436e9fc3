"""Aggregated API servers: requests for the group versions of APIServices with a Service are passed on to them.

aggregator.py       which requests are passed on; availability of APIServices
backend.py          connections to one API server, with the identity of the user
downloads.py        documents that are fetched from an API server
documents.py        discovery with the groups of aggregated API servers
openapi.py          OpenAPI with the paths and definitions of aggregated API servers
proxy_settings.py   settings of connections
"""
