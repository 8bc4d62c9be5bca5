#!/bin/sh
# Put other people's servers of S3 and SQS into .venv/servers. Run by `make other-servers`.
#
# 1. moto and OpenStack's Swift (Python), from requirements/other-servers.lock
# 2. S3Mock and ElasticMQ (Java), and Hadoop's S3A: jars that the Ivy in PySpark brings
# 3. Versity's gateway and an old gofakes3 (Go), built where Go is installed
#
# Ceph is the system's: `apt-get install radosgw ceph-mon ceph-osd ceph-common`. Tests of what can't
# be had here are skipped and say so.
set -eu
cd "$(dirname "$0")/.."

uv=.venv/bin/uv
home=$PWD/.venv/servers
[ -x "$home/bin/python" ] || "$uv" venv --quiet --python .venv/bin/python "$home"
"$uv" pip sync --quiet --python "$home/bin/python" --require-hashes requirements/other-servers.lock

. scripts/ivy.sh
jars s3mock com.adobe.testing s3mock 4.12.4
jars elasticmq org.elasticmq elasticmq-server_2.13 1.7.1
jars s3a org.apache.hadoop hadoop-aws 3.5.0 # of the Hadoop in PySpark; 690 MB
# Spark's side of S3A's committers, of which there is none for Spark 4.3 yet; alone, without Hadoop.
jars committers org.apache.spark spark-hadoop-cloud_2.13 4.1.2 -notransitive

built() { # program, package with version
    [ -x "$home/bin/$1" ] && return
    if ! command -v go >/dev/null; then
        echo "$1 needs Go, which is not here: its tests will be skipped" >&2
    elif ! GOBIN="$home/bin" go install "$2" >"$home/$1.log" 2>&1; then
        echo "$1 can't be built ($home/$1.log): its tests will be skipped" >&2
    fi
}
built versitygw github.com/versity/versitygw/cmd/versitygw@v1.8.0
# Before it had conditional writes: what has none is to be refused.
built gofakes3 github.com/johannesboyne/gofakes3/cmd/gofakes3@v0.0.0-20230506070712-04da935ef877
rm -rf "$home/ivy" # a second copy of each jar
touch "$home/.synced"
