"""What a stream has recorded, asked of its logs alone."""
