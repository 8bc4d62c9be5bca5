"""The main job on real data in a real Airflow: `make demo`."""
