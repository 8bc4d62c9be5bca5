# Airflow whose tasks are clients of the server: without Java, and without PySpark itself.
FROM apache/airflow:slim-3.3.2-python3.12
RUN pip install --no-cache-dir "airflow-provider-cloudfiles[connect,delta]" "apache-airflow[postgres]==3.3.2"
USER root
RUN install --directory --owner airflow --group 0 /lake
USER airflow
