#!/bin/sh
# Put what the tests on YARN need into .venv/yarn. Run by `make yarn`.
#
# 1. Hadoop's ResourceManager and NodeManager: one jar of the Hadoop in PySpark, and the
#    cryptography that it calls, with the Ivy in PySpark
# 2. env: the Python environment that is packed for the containers, without this package itself
set -eu
cd "$(dirname "$0")/.."

uv=.venv/bin/uv
home=$PWD/.venv/yarn
mkdir -p "$home"
. scripts/ivy.sh
jars hadoop org.apache.hadoop hadoop-client-minicluster 3.5.0 -notransitive
jars bouncycastle org.bouncycastle bcpkix-jdk18on 1.82
[ -x "$home/env/bin/python" ] || "$uv" venv --quiet --python .venv/bin/python "$home/env"
"$uv" pip sync --quiet --python "$home/env/bin/python" --require-hashes requirements/yarn.lock
rm -rf "$home/ivy" # a second copy of each jar
touch "$home/.synced"
