# Airflow whose tasks are clients of the server: without Java, and without PySpark itself.
FROM apache/airflow:slim-3.3.2-python3.12
COPY --chown=50000:0 dist/airflow_provider_cloudfiles-*.whl /tmp/install/
RUN wheel="$(echo /tmp/install/*.whl)" \
    && pip install --no-cache-dir "${wheel}[connect,delta]" "apache-airflow[postgres]==3.3.2"
USER root
RUN install --directory --owner airflow --group 0 /lake
USER airflow
