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

# With the newest packages a user's first commands end with nothing on stderr.
python - <<'END'
import json
from pathlib import Path
from PIL import Image

images = [dict(id=i, file_name=f'{i}.png', width=64, height=64) for i in range(2)]
boxes = [dict(id=i, image_id=i, category_id=1, bbox=[8, 8, 32, 32], area=1024, iscrowd=0) for i in range(2)]
content = dict(images=images, annotations=boxes, categories=[dict(id=1, name='square')])
Path('data/annotations').mkdir(parents=True)
for split in ('train', 'val'):
    folder = Path('data', split)
    folder.mkdir()
    for one in images:
        picture = Image.new('RGB', (64, 64), (90, 90, 90))
        picture.paste((200, 40, 40), (8, 8, 40, 40))
        picture.save(folder / one['file_name'])
    Path('data/annotations', f'{split}.json').write_text(json.dumps(content))
END
export TOKENNORM_CACHE="$trial/cache"
for words in 'train --data data --model mini --init none --epochs 1 --image-size 64 --workers 0 --out run' \
    'test run' 'predict run data/val'; do
    tokennorm $words >out.txt 2>err.txt || { cat out.txt err.txt && exit 1; } # shellcheck disable=SC2086
    if [ -s err.txt ]; then
        echo "tokennorm $words prints to stderr:" && cat err.txt && exit 1
    fi
done
tail -n 1 out.txt
