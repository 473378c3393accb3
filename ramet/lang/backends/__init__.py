"""Places where a node can run: one file each, one conformance suite for all."""
