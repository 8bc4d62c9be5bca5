#!/bin/sh
# Build the wheel and the source archive into dist/, with the constraints beside them. Run by `make dist`.
#
# The environment has what requirements/dist.lock says, by hash: nothing of what develops or runs the project.
# CLOUDFILES_REPOSITORY is the address that the README and the metadata link to: see hatch_build.py.
set -eu
cd "$(dirname "$0")/.."
. scripts/find_python.sh

environment=build/dist
if ! will_do "$environment/bin/python" || [ requirements/dist.lock -nt "$environment/.synced" ]; then
    python=$(find_python)
    rm -rf "$environment"
    "$python" -m venv "$environment"
    "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
        -r requirements/dist.lock
    touch "$environment/.synced"
fi

[ -n "${CLOUDFILES_REPOSITORY:-}" ] || echo \
    "No address of the repository is given (make dist REPOSITORY=https://...): the README has no links, the metadata no URLs."
"$environment/bin/python" -m build --no-isolation "$@"
cp requirements/constraints.txt dist/
