#!/bin/sh
# Install what uv.lock pins into an environment, and remove nothing: what `make env` runs.
#   tools/setup_env.sh [OPTION ...]   options of `uv sync`, e.g. --no-default-groups --group detection; without any, the
#                                     default groups of pyproject.toml are installed
# Variables:
#   PYTHON       interpreter for a new environment (python3)
#   VENV         environment, new or existing (.venv); packages in other versions are replaced
#   TORCH_INDEX  another index for torch and torchvision, e.g. https://download.pytorch.org/whl/cpu. The environment
#                remembers it; TORCH_INDEX='' forgets it
set -eu

if [ -z "${SETUP_ENV_LOCKED-}" ] && command -v flock >/dev/null; then # a second one waits, and then has nothing to do
    export SETUP_ENV_LOCKED=1
    exec flock "$0" sh "$0" "$@"
fi
VENV=${VENV:-.venv}
PYTHON=${PYTHON:-python3}
memory=$VENV/tokennorm_torch_index
unfinished=$VENV/tokennorm_unfinished # while packages are installed, and until they pass the check
TORCH_INDEX=${TORCH_INDEX-$(cat "$memory" 2>/dev/null || true)}
installed() { ls -d "$VENV"/lib/python3.*/site-packages/*.dist-info 2>/dev/null || true; }

stop() {
    echo "$1" >&2
    exit 1
}

# Make the environment, and install uv there. An environment without pip is served by the uv on PATH.
other='another interpreter: make env PYTHON=python3.11'
[ ! -x "$VENV/bin/python" ] || PYTHON=$VENV/bin/python other="another environment, or remove this one: make env VENV=.venv3"
"$PYTHON" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' ||
    stop "$PYTHON is not Python 3.10 to 3.13. Name $other"
[ -x "$VENV/bin/uv" ] || echo "Preparing the environment $VENV with uv, which installs the packages ..."
for link in "$VENV"/bin/python*; do # venv keeps links to an interpreter that is gone
    [ -e "$link" ] || rm -f "$link"
done
[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV" || stop "$PYTHON cannot create the environment $VENV."
uv=$VENV/bin/uv
[ -x "$uv" ] || "$VENV/bin/python" -m pip install --quiet --requirement requirements/uv.txt || uv=uv
command -v "$uv" >/dev/null || stop 'uv was not installed, see above. Connect to the network or name a mirror (PIP_INDEX_URL), and run make env again.'
export UV_PROJECT_ENVIRONMENT="$VENV" UV_PYTHON="$VENV/bin/python"
again= # packages whose installation was interrupted: uv takes them for installed
[ ! -e "$unfinished" ] || again=$("$VENV/bin/python" -c '
import csv
from pathlib import Path
from sysconfig import get_path

site = Path(get_path("purelib"))
for info in site.glob("*.dist-info"):
    record = info / "RECORD"
    files = [row[0] for row in csv.reader(record.open())] if record.exists() else []
    if not files or not all((site / file).exists() for file in files):
        print("--reinstall-package", info.name.partition("-")[0])
')
[ -e "$unfinished" ] || before=$(installed)
[ ! -e "$unfinished" ] || [ "$(cat "$unfinished")" = "$*" ] || set -- # packages of other groups may be incomplete
echo "$*" >"$unfinished"

if [ -z "$TORCH_INDEX" ]; then
    "$uv" sync --frozen --inexact $again "$@"
else
    # The same versions, but torch from somewhere else, hence without the hashes of uv.lock.
    pins=$VENV/tokennorm_pins.txt
    "$uv" export --frozen --quiet --no-hashes --prune torch --prune torchvision --output-file "$pins" "$@"
    grep -oE 'torch(vision)?==[0-9.]+' pyproject.toml >>"$pins"
    "$uv" pip install $again --requirement "$pins" --index "$TORCH_INDEX" --index-strategy unsafe-best-match
fi

echo "$TORCH_INDEX" >"$memory"
# Python compiles to bytecode what is imported here, and later what is imported first.
[ "$(installed)" = "${before-}" ] || env -u PYTHONDONTWRITEBYTECODE "$VENV/bin/python" -m tokennorm.cli.check_env
rm "$unfinished"
