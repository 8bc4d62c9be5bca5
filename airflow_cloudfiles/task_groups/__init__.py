"""Streams as task groups."""
