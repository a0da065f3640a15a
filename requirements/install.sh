#!/bin/sh
# Creates .venv beside this folder and installs the layers named as arguments (control, trainer, dev) from their
# hashed locks, once: a layer whose lock hasn't changed since costs a file comparison.
set -eu

cd "$(dirname "$0")/.."
venv=.venv
stamps=$venv/.installed
layers=${*:-control}

fail() {
    printf 'ringmaster: %s\n' "$1" >&2
    printf 'ringmaster: exit 3 (a check failed, nothing was started)\n' >&2
    exit 3
}

up_to_date() {
    [ -x "$venv/bin/python" ] && [ ! -e "$stamps/installing" ] || return 1
    [ "$(cat "$stamps/place" 2>/dev/null)" = "$PWD" ] || return 1
    for layer in $layers; do
        cmp -s "requirements/$layer.txt" "$stamps/$layer" || return 1
    done
}

# The first Python that is new enough; PYTHON=<program> chooses.
find_python() {
    if [ -n "${PYTHON:-}" ]; then
        set -- "$PYTHON"
    else
        set -- python3 python3.14 python3.13 python3.12 python3.11
    fi
    for candidate; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s' "$candidate"
            return
        fi
    done
    found=$("$1" -V 2>/dev/null) || found="not there"
    fail "needs Python 3.11 or newer, but $1 is $found. Install one (Debian, Ubuntu: apt install python3 python3-venv), or name it: make PYTHON=/path/to/python3.12"
}

make_venv() {
    python=$(find_python)
    printf 'ringmaster: creating %s with %s\n' "$venv" "$("$python" -V)"
    rm -rf "$venv"
    if ! said=$("$python" -m venv "$venv" 2>&1); then
        rm -rf "$venv"
        case $said in
            *ensurepip* | *"No module named venv"*)
                fail "$python has no venv module. On Debian or Ubuntu: apt install python3-venv" ;;
            *) fail "can't create $venv: $said" ;;
        esac
    fi
    # uv installs the 5 GB of CUDA wheels some five times faster than pip and shares them between checkouts. It is
    # itself pinned and hashed, and pip does the work where uv has no wheel for this machine.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
        -r requirements/installer.txt || printf 'ringmaster: no uv for this machine, pip installs instead (slower)\n'
    mkdir -p "$stamps"
    printf '%s' "$PWD" >"$stamps/place"
}

# What uv doesn't read by itself: the index, if any, that this machine's pip is set up with.
use_pips_index() {
    index=$("$venv/bin/python" -m pip config get global.index-url 2>/dev/null) || return 0
    UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$index}
    export UV_DEFAULT_INDEX
}

# GB that a layer takes, unpacked.
size_of() {
    case $1 in
        trainer) echo 6 ;;
        *) echo 1 ;;
    esac
}

# Where the layer goes, and uv's cache: on one disk they share the files, on two disks each has them.
check_disk() {
    cache=$("$venv/bin/uv" cache dir 2>/dev/null) || cache=$venv
    for place in "$venv" "$cache"; do
        while [ ! -d "$place" ]; do
            place=$(dirname "$place")
        done
        free_kb=$(df -Pk "$place" | awk 'NR == 2 { print $4 }')
        [ "$free_kb" -ge $(($2 * 1048576)) ] ||
            fail "$1 needs $2 GB of disk (PyTorch brings CUDA along), $place has $((free_kb / 1048576)) GB free: free some, clone elsewhere, or set UV_CACHE_DIR"
    done
}

install_layer() {
    check_disk "$1" "$(size_of "$1")"
    printf 'ringmaster: installing %s (requirements/%s.txt)\n' "$1" "$1"
    : >"$stamps/installing"  # while it stands, packages may be there in part
    if [ -x "$venv/bin/uv" ]; then
        use_pips_index
        UV_SYSTEM_CERTS=${UV_SYSTEM_CERTS:-1} \
            "$venv/bin/uv" pip install --python "$venv/bin/python" --require-hashes --no-config -r "requirements/$1.txt"
    else
        "$venv/bin/python" -m pip install --require-hashes -r "requirements/$1.txt"
    fi || fail "installing $1 failed, see above; is the network (or a proxy) set up? Run the same command again to go on"
    cp "requirements/$1.txt" "$stamps/$1"
    rm "$stamps/installing"
}

# Compiled once here, not by each of a job's processes at once, nor (with PYTHONDONTWRITEBYTECODE) at every start:
# importing torch and starting ansible-playbook then take two thirds of the time. Collections, which an earlier version of this project installed, are unused.
compile_packages() {
    packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    "$venv/bin/python" -m compileall -q -j 0 -x ansible_collections "$packages" >/dev/null 2>&1 ||
        : # some packages carry files for other Pythons
}

up_to_date && exit 0

# One installation at a time in a checkout, where the system has flock.
if command -v flock >/dev/null && [ -z "${RINGMASTER_INSTALLING:-}" ]; then
    RINGMASTER_INSTALLING=1 exec flock requirements "$PWD/requirements/install.sh" "$@"
fi

# An installation that was interrupted can't be gone on with: a package half there passes for whole. Made anew, it
# takes what was already fetched from the cache.
if [ "$(cat "$stamps/place" 2>/dev/null)" != "$PWD" ] || [ -e "$stamps/installing" ] ||
    ! "$venv/bin/python" -c '' 2>/dev/null; then
    make_venv
fi
for layer in $layers; do
    cmp -s "requirements/$layer.txt" "$stamps/$layer" || install_layer "$layer"
done
compile_packages
