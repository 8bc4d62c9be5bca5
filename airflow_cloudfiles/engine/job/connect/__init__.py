"""How does a run use the Spark of a Spark Connect server?"""
