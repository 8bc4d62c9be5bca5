"""`cloudfiles state`, by its actions."""
