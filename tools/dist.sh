#!/bin/sh
# Builds wheels and sdists of both distributions into dist/, checks them, and tries the wheels in a new environment and an
# empty folder: what `make dist` runs. Variables:
#   VENV     environment with uv (.venv)
#   PYTHON   interpreter of the new environment (python3)
set -eu

VENV=$(cd "${VENV:-.venv}" && pwd)
uv=$VENV/bin/uv
trial=$(mktemp -d)
trap 'rm -rf "$trial"' EXIT

rm -rf dist build/lib
for folder in projects/mmcv_ops .; do # the wheel is built from the sdist
    "$uv" build --quiet --python "$VENV/bin/python" --out-dir dist "$folder"
done
"$uv" tool run twine==7.0.0 check --strict dist/*.whl dist/*.tar.gz

"$uv" venv --quiet --python "$("${PYTHON:-python3}" -c 'import sys; print(sys.executable)')" "$trial/venv"
"$uv" pip install --quiet --python "$trial/venv" --no-compile-bytecode \
    dist/mmcv_ops_torchvision-*.whl "$(ls "$PWD"/dist/tokennorm-*.whl)[all]"
cd "$trial"
export PATH="$trial/venv/bin:$PATH"
python -m tokennorm.cli.check_env
python -m mmcv_ops
tokennorm --help >help.txt
tokennorm configs >configs.txt
head -n 3 help.txt configs.txt
grep -q 'pvt/retinanet_pvt-t_fpn_1x_coco' configs.txt
