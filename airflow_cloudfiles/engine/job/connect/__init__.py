"""Use the Spark of a Spark Connect server for a run."""
