"""Which files have we already seen, and which of them does a micro-batch take?"""
