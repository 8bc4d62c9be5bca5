"""What all commands have in common: what is written of what they have found."""
