#!/usr/bin/env bash
# Downloads a published detector, evaluates it on COCO val2017 and compares its box AP with the one that its authors state:
#
#     tools/verify_published.sh retinanet_pvt-t [COCO_FOLDER]
#
# COCO_FOLDER (default: data/coco) has annotations/instances_val2017.json and val2017/. The exit status is 1 if the APs
# differ by more than 0.1. It has not been run by TokenNorm's authors: they had no network and no COCO.
set -euo pipefail
name=${1:?name of a published detector; tokennorm weights lists them}
coco=$(realpath "${2:-data/coco}")
out=work_dirs/verify_$name
config=$(python -c "import sys; from tokennorm.base.published import PUBLISHED; print(PUBLISHED[sys.argv[1]].config)" "$name")
python tools/test.py "$config" "$name" --work-dir "$out" --cfg-options \
    test_dataloader.dataset.data_root="$coco/" test_evaluator.ann_file="$coco/annotations/instances_val2017.json"
python - "$name" "$out" <<'PYTHON'
import json
import sys
from pathlib import Path

from tokennorm.base.published import PUBLISHED

stated = PUBLISHED[sys.argv[1]].box_ap
metrics = max(Path(sys.argv[2]).glob('*/*.json'), key=lambda path: path.stat().st_mtime)
measured = 100 * json.loads(metrics.read_text().splitlines()[-1])['coco/bbox_mAP']
print(f'{sys.argv[1]}: box AP {measured:.1f}, stated {stated:.1f}')
sys.exit(abs(measured - stated) > 0.1 + 1e-9)
PYTHON
