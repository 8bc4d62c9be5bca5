#!/bin/sh
# Make .venv what requirements/dev.lock says. Run by `make setup`; needs Python 3.11 or later.
#
# 1. Find a Python:        $PYTHON if given, else the first that will do.
# 2. Make .venv with it:   only when .venv is missing or broken.
# 3. Install uv into it:   the version and hashes in requirements/bootstrap.lock.
# 4. Fill it with uv:      exactly requirements/dev.lock, by hash; what is not in it is removed.
# 5. Install the project:  editable, without dependencies, with the build back-end of the lock.
set -eu
cd "$(dirname "$0")/.."

. scripts/find_python.sh

if ! will_do .venv/bin/python; then
    python=$(find_python)
    echo "Making .venv with $python ($("$python" -c 'import platform; print(platform.python_version())'))"
    rm -rf .venv
    "$python" -m venv .venv
fi

uv=.venv/bin/uv
wanted=$(sed -n 's/^uv==\([^ ]*\).*/\1/p' requirements/bootstrap.lock)
case "$("$uv" --version 2>/dev/null || true)" in
"uv $wanted" | "uv $wanted "*) ;;
*)
    echo "Installing uv $wanted"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
        -r requirements/bootstrap.lock
    ;;
esac

echo "Installing what requirements/dev.lock says"
"$uv" pip sync --quiet --python .venv/bin/python --require-hashes requirements/dev.lock
"$uv" pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --editable .
touch .venv/.synced
