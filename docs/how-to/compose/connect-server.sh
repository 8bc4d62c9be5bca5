#!/bin/sh
# Runs a Spark Connect server in the foreground, on loopback.
#
#   CONNECT_TOKEN_FILE   file with the token that clients must have
#   CONNECT_PORT         port (15002)
#   CONNECT_MEMORY       memory of the JVM, for all runs together (2g); their rows are in Python processes beside it
#   CONNECT_SCRATCH      folder for what Spark spills, and for its checkpoints (/scratch)
set -eu
SPARK_CONNECT_AUTHENTICATE_TOKEN="$(cat "$CONNECT_TOKEN_FILE")"
PYSPARK_PYTHON="$(command -v python)"
SPARK_HOME="$(python -c 'import importlib.util; print(*importlib.util.find_spec("pyspark").submodule_search_locations)')"
export SPARK_CONNECT_AUTHENTICATE_TOKEN PYSPARK_PYTHON SPARK_HOME
SCRATCH="${CONNECT_SCRATCH:-/scratch}"
exec "$SPARK_HOME/bin/spark-submit" \
  --class org.apache.spark.sql.connect.service.SparkConnectServer \
  --master "local[*]" \
  --driver-memory "${CONNECT_MEMORY:-2g}" \
  --conf "spark.connect.grpc.binding.address=127.0.0.1" \
  --conf "spark.connect.grpc.binding.port=${CONNECT_PORT:-15002}" \
  --conf "spark.default.parallelism=$(nproc)" \
  --conf "spark.driver.bindAddress=127.0.0.1" \
  --conf "spark.driver.host=127.0.0.1" \
  --conf "spark.driver.extraJavaOptions=-Djava.io.tmpdir=$SCRATCH" \
  --conf "spark.local.dir=$SCRATCH" \
  --conf "spark.python.daemon.module=airflow_cloudfiles.engine.spark.daemon" \
  --conf "spark.sql.warehouse.dir=$SCRATCH/warehouse" \
  --conf "spark.ui.enabled=false" \
  spark-internal
