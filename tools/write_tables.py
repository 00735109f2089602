"""Writes the README's table of results and docs/configs.md: `python tools/write_tables.py`

Results come from configs/*/metafile.yml, the only place where they are written by hand, and what is the paper's stays
in columns of its own. Parameters and operations are counted in the models that the configs build, for some minutes.
"""

import argparse
import re
from pathlib import Path
from typing import Any

import mmdet.utils
import torch
import yaml
from mmengine import Config, DefaultScope
from mmengine.registry import MODELS

from tokennorm.engine.flops import count_operations, forward_of

ROOT = Path(__file__).resolve().parents[1]
INDEX = ROOT / 'docs' / 'configs.md'
MARKED = re.compile(r'(?<=<!-- results -->\n).*?(?=<!-- end of results -->)', re.DOTALL)
PAPER = 'Reported by the DTN paper, not by us'
NOT_MEASURED = 'not measured'
DETECTORS = ('retinanet', 'mask-rcnn')
IMAGE = (800, 1280)
COUNTED: dict[str, Any] = {}
HEADING = """# Detectors on COCO

Written by `python tools/write_tables.py` from the configs and their `metafile.yml`. Parameters are in millions. FLOPs
are billions of multiplications with an addition each for one image, of the whole detector and of its backbone at 800 x
1280, and of the backbone at 224 x 224; Mask R-CNN's with 1000 proposals and 100 masks. The same count gives 238.5 for
RetinaNet and 259.3 for Mask R-CNN on ResNet-50. DTN counts with its sums along both axes in full, of which the code
leaves out what float32 does not resolve. AP is box AP, or box / mask AP, on val2017; "paper" is what Table 11 of the
DTN paper reports of its authors' training.
"""


def read_models(data: str = 'coco') -> list[dict[str, Any]]:
    """The models on `data`, 'coco' or 'in1k', of the metafiles that model-index.yml names, in its order."""
    index = yaml.safe_load((ROOT / 'model-index.yml').read_text())
    models = [model for path in index['Import'] for model in yaml.safe_load((ROOT / path).read_text())['Models']]
    return [model for model in models if model['Name'].endswith(f'_{data}')]


def average_precision(of: dict[str, Any], otherwise: str) -> str:
    """Box AP, and mask AP behind a slash where there is one, of a model or of what a paper reports."""
    metrics = {key: value for result in of.get('Results', []) for key, value in result['Metrics'].items()}
    values = [f'{metrics[key]:.1f}' for key in ('box AP', 'mask AP') if key in metrics]
    return ' / '.join(values) or otherwise


def norm_and_stem(name: str) -> str:
    """What a config's name says of both."""
    return ('DTN' if '-dtn' in name else 'LayerNorm') + (', DPN' if '-dpn' in name else '')


def table(header: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    head, *body = (f'| {" | ".join(line)} |\n' for line in [header, *rows])
    return ''.join([head, '|' + '---|' * len(header) + '\n', *body])


def results_table() -> str:
    """A row for each backbone of which a result of the paper or of ours is known, and one for all others."""
    pairs: dict[str, dict[str, dict[str, Any]]] = {}
    for model in read_models():
        detector, _, backbone = model['Name'].partition('_')
        pairs.setdefault(backbone, {})[detector] = model
    rows, unknown = [], 0
    for backbone, pair in pairs.items():
        cells = []
        for detector in DETECTORS:
            model = pair.get(detector, {})
            cells += [
                average_precision(model.get(PAPER, {}), 'not in the paper'),
                average_precision(model, NOT_MEASURED),
            ]
        if set(cells) == {'not in the paper', NOT_MEASURED}:
            unknown += len(pair)
        else:
            rows.append([f'`*_{backbone}`', norm_and_stem(backbone), *cells])
    rows.append([f'the {unknown} others', '', *['not in the paper', NOT_MEASURED] * 2])
    heads = ['RetinaNet: paper', 'ours', 'Mask R-CNN: paper, box / mask', 'ours']
    return table(['config', 'norm', *heads], rows)


def readme_with_table(readme: str) -> str:
    """The README with its table of results as it is now."""
    if not MARKED.search(readme):
        raise ValueError('README.md has no <!-- results --> and <!-- end of results -->')
    return MARKED.sub(lambda _: results_table(), readme)


def count_parameters(model: torch.nn.Module) -> str:
    """In millions."""
    return f'{sum(p.numel() for p in model.parameters()) / 1e6:.2f}'


def build(cfg: Any, device: str) -> torch.nn.Module:
    """The detector or backbone of a config; on the device meta it takes no memory."""
    with DefaultScope.overwrite_default_scope('mmdet'), torch.device(device):
        return MODELS.build(dict(cfg))


def in_billions(operations: int) -> str:
    """With one digit behind the point, below 10 with two."""
    return f'{operations / 1e9:.1f}' if operations >= 1e10 else f'{operations / 1e9:.2f}'


def operations(cfg: Any) -> tuple[int, int, int]:
    """Of the detector and of its backbone at 800 x 1280, and of the backbone at 224 x 224.

    What stands behind equal backbones, and before equal heads, is counted once.
    """
    own = {key: value for key, value in cfg.backbone.items() if key not in ('init_cfg', 'with_cp')}
    backbone, heads = str(sorted(own.items(), key=str)), f'{cfg.type} {cfg.neck}'
    if {backbone, heads} - COUNTED.keys():
        detector = build(cfg, 'cpu').eval().double()
        if backbone not in COUNTED:
            COUNTED[backbone] = tuple(count_operations(detector.backbone, size) for size in (IMAGE, (224, 224)))
        if heads not in COUNTED:
            COUNTED[heads] = count_operations(forward_of(detector), IMAGE) - COUNTED[backbone][0]
    large, small = COUNTED[backbone]
    return large + COUNTED[heads], large, small


def index_row(model: dict[str, Any]) -> list[str]:
    """A model's row in docs/configs.md."""
    cfg = Config.fromfile(ROOT / model['Config']).model
    detector = build(cfg, 'meta')
    return [
        f'[{model["Name"]}](../{model["Config"]})',
        count_parameters(detector),
        count_parameters(detector.backbone),
        *(in_billions(count) for count in operations(cfg)),
        average_precision(model.get(PAPER, {}), ''),
        average_precision(model, NOT_MEASURED),
    ]


def index() -> str:
    """docs/configs.md."""
    mmdet.utils.register_all_modules(init_default_scope=False)
    flops = ['FLOPs', 'of the backbone', 'at 224 x 224']
    header = ['config', 'parameters', 'of the backbone', *flops, 'AP: paper', 'AP: ours']
    groups: dict[str, list[list[str]]] = {}
    for model in read_models():
        groups.setdefault(model['In Collection'], []).append(index_row(model))
    return HEADING + ''.join(f'\n## {name}\n\n{table(header, rows)}' for name, rows in groups.items())


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    readme = ROOT / 'README.md'
    readme.write_text(readme_with_table(readme.read_text()))
    INDEX.write_text(index())


if __name__ == '__main__':
    main()
