# Find a Python for an environment: $PYTHON if given, else the first that will do. Read by other scripts.

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
    fail \
        "No Python 3.11 or later that can make an environment was found${PYTHON:+ (PYTHON=$PYTHON)}." \
        "Install one, then run make again:" \
        "  Debian, Ubuntu    sudo apt-get install python3 python3-venv" \
        "  Fedora            sudo dnf install python3" \
        "  macOS             brew install python@3.13" \
        "or name one: make setup PYTHON=/path/to/python3.11"
}
