"""Commands for where runs happen: this machine, a cluster."""
