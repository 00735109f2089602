#!/usr/bin/env bash
# Packs what benchmarks/gpu.py needs on a machine with a GPU, PyTorch and Python 3.12, and without a network:
#
#     benchmarks/carry.sh site.tar.gz      # here, after `make env`; copy the repository and the file to the machine
#
#     mkdir /tmp/site && tar xzf site.tar.gz -C /tmp/site     # there; 9 MB packed
#     PYTHONPATH=/tmp/site python3 benchmarks/gpu.py --out FOLDER
#
# Not packed, because a machine with PyTorch mostly has them: torchvision, timm, einops, numpy, scipy, scikit-image,
# imageio, numba, six, matplotlib, opencv-python-headless, pillow, packaging, pyyaml, rich, tqdm, psutil, jinja2, click,
# markdown, zipp, safetensors, filelock, hypothesis, pytest and pytest-xdist. The versions are those of uv.lock.
set -euo pipefail
archive=$(realpath -m "${1:?the archive to write, such as site.tar.gz}")
cd "$(dirname "$0")/.."
names=$(tr -s ' \n' '|' <<< 'onedl-mmengine onedl-mmcv onedl-mmdetection onedl-mmpretrain ./projects/mmcv_ops addict yapf
platformdirs termcolor terminaltables mat4py modelindex model-index ordered-set importlib-metadata pycocotools shapely
imaug imagecorruptions-imaug hotcoco')
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
.venv/bin/uv export --frozen --quiet --no-hashes --no-header --no-annotate --group detection --no-emit-project \
    | grep -E "^(${names%|})(==| )" > "$folder/requirements.txt"
.venv/bin/uv pip install --quiet --no-deps --target "$folder/site" --python-version 3.12 \
    --python-platform x86_64-manylinux_2_28 --requirement "$folder/requirements.txt"
# Its language models do not import with transformers 5, which such a machine may have.
echo 'WITH_MULTIMODAL = False' >> "$folder/site/mmpretrain/utils/dependency.py"
tar -C "$folder/site" --exclude __pycache__ --exclude '*/tests' -cz . > "$archive"
du -h "$archive"
