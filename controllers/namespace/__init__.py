"""The namespace controller: empties and finalises namespaces that are being deleted."""
