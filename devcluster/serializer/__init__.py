"""Request and response bodies: JSON, YAML, protobuf; decoding, defaulting, conversion between API versions."""
