"""How do the runs of one user on one machine share a Spark that is already warm?"""
