"""EndpointSlice mirroring controller: publishes Endpoints that a user writes in EndpointSlices."""
