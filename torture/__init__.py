"""`make torture`: random schedules of arrivals, runs and kills, and what is left of them."""
