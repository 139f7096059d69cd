"""Bytes to network and back: dialects, verifying decoder, reader, writer."""
