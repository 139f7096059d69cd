"""Rule patterns as matchers over a network."""
