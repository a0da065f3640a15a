#!/bin/sh
# Creates .venv beside this folder and installs the layers named as arguments (control, trainer, dev) from their
# hashed locks, and an exit function for programs that use Gloo. What hasn't changed since it was installed costs one
# file comparison.
set -eu

cd -P "$(dirname "$0")/.."  # through a link, it is the same place
venv=.venv
stamps=$venv/.installed
layers=${*:-control}
exit_function="ringmaster_exit.py ringmaster_exit.pth"  # in this order: the second file needs the first

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
    for file in $exit_function; do
        cmp -s "requirements/$file" "$stamps/$file" || return 1
    done
}

# Whether a Python has wheels for every locked package. Before raising the upper end, check each lock against it:
# uv pip install --dry-run --target new --python-version 3.15 --only-binary :all: --require-hashes -r <layer>.txt
fits() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null
}

# The first Python that fits; PYTHON=<program> chooses another.
find_python() {
    if [ -n "${PYTHON:-}" ]; then
        set -- "$PYTHON"
    else
        set -- python3 python3.14 python3.13 python3.12 python3.11
    fi
    for candidate; do
        if fits "$candidate"; then
            printf '%s' "$candidate"
            return
        fi
    done
    version=$("$1" -V 2>&1) || version="not installed"
    fail "needs Python 3.11 to 3.14 (newer ones lack wheels of the locked packages), but $1 is $version. Install one of them (Debian, Ubuntu: apt install python3 python3-venv), or name it: make PYTHON=/path/to/python3.12"
}

make_venv() {
    python=$(find_python)
    printf 'ringmaster: creating %s with %s\n' "$venv" "$("$python" -V)"
    rm -rf "$venv"
    if ! output=$("$python" -m venv "$venv" 2>&1); then
        rm -rf "$venv"
        case $output in
            *ensurepip* | *"No module named venv"*)
                fail "$python has no venv module. On Debian or Ubuntu: apt install python3-venv" ;;
            *) fail "can't create $venv: $output" ;;
        esac
    fi
    # uv installs the 5 GB of CUDA wheels about five times faster than pip and shares them between checkouts. It is
    # pinned and hashed itself. Where it has no wheel for this machine, pip installs everything.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
        -r requirements/installer.txt || printf 'ringmaster: uv has no wheel for this machine; pip installs instead (slower)\n'
    mkdir -p "$stamps"
    printf '%s' "$PWD" >"$stamps/place"
}

# uv doesn't read pip's configuration. If this machine's pip has an index set there, uv gets the same one.
use_pips_index() {
    index=$("$venv/bin/python" -m pip config get global.index-url 2>/dev/null) || return 0
    UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$index}
    export UV_DEFAULT_INDEX
}

# Print how many GB a layer takes, unpacked.
size_of() {
    case $1 in
        trainer) echo 6 ;;
        *) echo 1 ;;
    esac
}

# Check the disk of .venv and the disk of uv's cache. On one disk the two share the files; on two, each holds them all.
check_disk() {
    cache=$("$venv/bin/uv" cache dir 2>/dev/null) || cache=$venv
    for place in "$venv" "$cache"; do
        while [ ! -d "$place" ]; do
            place=$(dirname "$place")
        done
        free_kb=$(df -Pk "$place" | awk 'NR == 2 { print $4 }')
        [ "$free_kb" -ge $(($2 * 1048576)) ] ||
            fail "$1 needs $2 GB of disk (PyTorch brings CUDA along), but $place has $((free_kb / 1048576)) GB free: free some space, clone elsewhere, or set UV_CACHE_DIR"
    done
}

install_layer() {
    check_disk "$1" "$(size_of "$1")"
    printf 'ringmaster: installing %s (requirements/%s.txt)\n' "$1" "$1"
    : >"$stamps/installing"  # while this file exists, packages may be incomplete
    if [ -x "$venv/bin/uv" ]; then
        use_pips_index
        UV_SYSTEM_CERTS=${UV_SYSTEM_CERTS:-1} \
            "$venv/bin/uv" pip install --python "$venv/bin/python" --require-hashes --no-config -r "requirements/$1.txt"
    else
        "$venv/bin/python" -m pip install --require-hashes -r "requirements/$1.txt"
    fi || fail "installing $1 failed, see above; is the network (or a proxy) set up? Run the same command again to continue"
    cp "requirements/$1.txt" "$stamps/$1"
    rm "$stamps/installing"
}

# Programs may start meanwhile, so each file is replaced in one go.
install_exit_function() {
    for file in $exit_function; do
        cp "requirements/$file" "$packages/$file.new"
        mv "$packages/$file.new" "$packages/$file"
        cp "requirements/$file" "$stamps/$file"
    done
}

# Compile once here. Otherwise all processes of a job would compile at the same time, or (with
# PYTHONDONTWRITEBYTECODE) at every start. It saves a third of the time that importing torch and starting
# ansible-playbook take. Collections, which an earlier version of this project installed, are unused.
compile_packages() {
    "$venv/bin/python" -m compileall -q -j 0 -x ansible_collections "$packages" >/dev/null 2>&1 ||
        : # some packages carry files for other Pythons
}

up_to_date && exit 0

# One installation at a time in a checkout, where the system has flock.
if command -v flock >/dev/null && [ -z "${RINGMASTER_INSTALLING:-}" ]; then
    RINGMASTER_INSTALLING=1 exec flock requirements "$PWD/requirements/install.sh" "$@"
fi

# An interrupted installation can't be continued: uv would take a package that is half there for a whole one. The new
# .venv takes from the cache what was already downloaded.
if [ "$(cat "$stamps/place" 2>/dev/null)" != "$PWD" ] || [ -e "$stamps/installing" ] ||
    ! "$venv/bin/python" -c '' 2>/dev/null; then
    make_venv
fi
for layer in $layers; do
    cmp -s "requirements/$layer.txt" "$stamps/$layer" || install_layer "$layer"
done
packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
install_exit_function
compile_packages
