"""Which files exist?"""
