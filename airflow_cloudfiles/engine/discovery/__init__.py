"""Find the files that exist."""
