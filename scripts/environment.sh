# shellcheck shell=sh
# Functions for the scripts here (POSIX sh, sourced): a Python environment in .venv on a machine that
# may have nothing but Python 3.11. Debian and Ubuntu packages are installed where they are missing
# and root or sudo is at hand.

say() {
    printf '== %s\n' "$*" >&2
}

# Run as root, or fail.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif ! command -v sudo >/dev/null; then
        return 1
    elif [ -t 0 ]; then
        sudo "$@"
    else
        sudo -n "$@"
    fi
}

# apt_install PACKAGE: fails where there is no apt, no root, or no such package.
apt_install() {
    command -v apt-get >/dev/null || return 1
    say "installing $1"
    # One source out of order must not keep a package in another from being installed.
    as_root apt-get update -qq >&2 || :
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1" >&2
}

# Print the first Python of version 3.11 or later ($PYTHON where it is set), or fail.
find_python() {
    for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3.14 python3}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

# Make .venv, or keep the one that is there and works.
make_environment() {
    if .venv/bin/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        return
    fi
    if ! python=$(find_python); then
        say "Python 3.11 or later is needed: install it, or name one: PYTHON=/path/to/python $0"
        return 1
    fi
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        apt_install "python$version-venv" || {
            say "$python cannot make environments: install its venv module (Debian, Ubuntu: python$version-venv)"
            return 1
        }
    fi
    say "making .venv with $python"
    "$python" -m venv --clear .venv
}
