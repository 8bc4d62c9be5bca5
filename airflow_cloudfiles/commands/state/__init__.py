"""Commands for what a checkpoint location remembers: its files, runs, schemas."""
