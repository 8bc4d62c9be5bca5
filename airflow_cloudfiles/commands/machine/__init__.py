"""Commands for where runs happen: this machine, its warm Sparks, a cluster."""
