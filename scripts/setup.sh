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

fail() {
    printf '%s\n' "$@" >&2
    exit 2
}

will_do() { # new enough, and able to make an environment?
    "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    for name in ${PYTHON:-python3.13 python3.12 python3.11 python3 python}; do
        if will_do "$name"; then
            echo "$name"
            return
        fi
    done
    return 1
}

if ! will_do .venv/bin/python; then
    python=$(find_python) || fail \
        "No Python 3.11 or later that can make an environment was found${PYTHON:+ (PYTHON=$PYTHON)}." \
        "Install one, then run make again:" \
        "  Debian, Ubuntu    sudo apt-get install python3 python3-venv" \
        "  Fedora            sudo dnf install python3" \
        "  macOS             brew install python@3.13" \
        "or name one: make setup PYTHON=/path/to/python3.11"
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
