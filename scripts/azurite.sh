#!/bin/sh
# Put Azurite, the emulator of Azure's Blob and Queue Storage, below .venv. Run by `make test`.
#
# It needs node and npm. Without them, or without the registry, the tests that need Azurite are skipped
# and say why; so nothing here fails.
set -eu
cd "$(dirname "$0")/.."

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
touch "$folder/.synced"
