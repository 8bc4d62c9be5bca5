# A Spark Connect server whose Python has this package. Python has the minor version of the Airflow image.
FROM python:3.12-slim-bookworm
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
COPY dist/airflow_provider_cloudfiles-*.whl /tmp/install/
RUN wheel="$(echo /tmp/install/*.whl)" && pip install --no-cache-dir "${wheel}[spark,delta]" "pyspark[connect]"
COPY --chmod=755 docs/how-to/compose/connect-server.sh /usr/local/bin/
# The user of the Airflow image: both write into /lake.
RUN useradd --uid 50000 --gid 0 --create-home spark && install --directory --owner spark --group 0 /scratch /lake
USER spark
WORKDIR /scratch
ENTRYPOINT ["connect-server.sh"]
