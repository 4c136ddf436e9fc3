"""EndpointSlice controller: publishes the addresses of a Service's Pods in EndpointSlices."""
