#!/bin/sh
# Put the emulators that cannot live in .venv itself below it. Run by `make test`.
#
# 1. ministack (S3, SQS, SNS, EventBridge, STS) pins another botocore than ours: .venv/emulators
# 2. Azurite (Azure's blobs and queues) needs node and npm: .venv/azurite
#    Without them, or without the registry, the tests on Azure are skipped and say why.
set -eu
cd "$(dirname "$0")/.."

uv=.venv/bin/uv
[ -x .venv/emulators/bin/python ] || "$uv" venv --quiet --python .venv/bin/python .venv/emulators
"$uv" pip sync --quiet --python .venv/emulators/bin/python --require-hashes requirements/emulators.lock

version=3.37.0 # speaks the API of the locked clients with --skipApiVersionCheck, and obeys startFrom
folder=.venv/azurite
mkdir -p "$folder"
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
    echo "Azurite needs node and npm, which are not here: the tests on Azure will be skipped" >&2
elif [ "$(cat "$folder/.version" 2>/dev/null)" = "$version" ]; then
    :
elif npm install --silent --no-save --no-audit --no-fund --ignore-scripts \
    --prefix "$folder" "azurite@$version" >"$folder/install.log" 2>&1; then
    echo "$version" >"$folder/.version"
    echo "Installed Azurite $version"
else
    echo "Azurite could not be installed ($folder/install.log): the tests on Azure will be skipped" >&2
fi
touch .venv/emulators/.synced
