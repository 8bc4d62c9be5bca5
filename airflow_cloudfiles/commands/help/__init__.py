"""Commands that explain: the documentation, options, completion in a shell."""
