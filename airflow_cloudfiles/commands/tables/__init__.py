"""Commands for where files go: a table, its rows, its columns and its upkeep."""
