#!/bin/sh
# Install what uv.lock pins into an environment: what `make env` runs. Variables:
#   PYTHON       interpreter for a new environment (python3)
#   VENV         environment, new or existing (.venv); packages in other versions are replaced
#   TORCH_INDEX  another index for torch and torchvision, e.g. https://download.pytorch.org/whl/cpu
#   MMCV_INDEX   compiled wheels of onedl-mmcv: an index, a page of links or a folder
# The environment remembers the last two; set one to '' to forget it.
set -eu

VENV=${VENV:-.venv}
PYTHON=${PYTHON:-python3}
memory=$VENV/tokennorm_indexes
remembered() { sed -n "s|^$1=||p" "$memory" 2>/dev/null || true; }
TORCH_INDEX=${TORCH_INDEX-$(remembered TORCH_INDEX)}
MMCV_INDEX=${MMCV_INDEX-$(remembered MMCV_INDEX)}
installed() { ls -d "$VENV"/lib/python3.*/site-packages/*.dist-info 2>/dev/null || true; }

stop() {
    echo "$1" >&2
    exit 1
}

# Make the environment, and install uv there. An environment without pip is served by the uv on PATH.
[ ! -x "$VENV/bin/python" ] || PYTHON=$VENV/bin/python
"$PYTHON" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' ||
    stop "$PYTHON is not Python 3.10 to 3.13. Name another interpreter: make env PYTHON=python3.11"
[ -x "$VENV/bin/uv" ] || echo "Preparing the environment $VENV with uv, which installs the packages ..."
[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV" || stop "$PYTHON cannot create the environment $VENV."
uv=$VENV/bin/uv
[ -x "$uv" ] || "$VENV/bin/python" -m pip install --quiet --requirement requirements/uv.txt || uv=uv
export UV_PROJECT_ENVIRONMENT="$VENV" UV_PYTHON="$VENV/bin/python"
before=$(installed)

case "$before" in
*onedl_mmcv*) ;;
*)
    # uv compiles mmcv unless its cache or MMCV_INDEX has a wheel. A GPU without nvcc would stop the build: hide the GPU.
    export MAX_JOBS="${MAX_JOBS:-$(getconf _NPROCESSORS_ONLN)}"
    if [ -z "$MMCV_INDEX" ]; then
        echo 'Compiling mmcv takes about ten minutes on two cores, once: uv keeps the wheel.'
        (passed=0; while sleep 20 >/dev/null 2>&1; do passed=$((passed + 20)); echo "  installing for ${passed} s"; done) &
        trap "kill $! 2>/dev/null || true" EXIT
    fi
    if command -v nvidia-smi >/dev/null && ! PATH=${CUDA_HOME:-/usr/local/cuda}/bin:$PATH command -v nvcc >/dev/null; then
        export CUDA_VISIBLE_DEVICES=
        echo 'WARNING: a GPU, but no nvcc: mmcv gets its operators for the CPU only. Install the CUDA toolkit of the' \
            'CUDA version of torch, or set CUDA_HOME or MMCV_INDEX; then run: uv cache clean onedl-mmcv, and make env'
    fi
    ;;
esac

if [ -z "$TORCH_INDEX$MMCV_INDEX" ]; then
    "$uv" sync --frozen --inexact
else
    # The same versions, but torch or mmcv from somewhere else, hence without the hashes of uv.lock.
    pins=$VENV/tokennorm_pins.txt
    "$uv" export --frozen --quiet --no-hashes --prune torch --prune torchvision --output-file "$pins"
    grep -oE 'torch(vision)?==[0-9.]+' pyproject.toml >>"$pins"
    set -- --requirement "$pins"
    [ -z "$TORCH_INDEX" ] || set -- "$@" --index "$TORCH_INDEX" --index-strategy unsafe-best-match
    case "$MMCV_INDEX" in
    '') ;;
    *://*) set -- "$@" --index "$MMCV_INDEX" --find-links "$MMCV_INDEX" --index-strategy unsafe-best-match ;;
    *) set -- "$@" --find-links "$MMCV_INDEX" ;;
    esac
    "$uv" pip install "$@"
fi

printf 'TORCH_INDEX=%s\nMMCV_INDEX=%s\n' "$TORCH_INDEX" "$MMCV_INDEX" >"$memory"
[ "$(installed)" = "$before" ] || "$VENV/bin/python" -m tokennorm.cli.check_env
