"""What is the process that keeps a Spark warm, and serves the runs of a machine?"""
