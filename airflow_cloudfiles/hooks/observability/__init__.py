"""What Airflow shows and passes on of a run: links, metrics, callbacks, lineage."""
