"""What all commands have in common: running a job, and what is written of it."""
