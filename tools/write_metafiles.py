"""Writes the metafiles of the configs and docs/configs.md from configs/results.yml: `python tools/write_metafiles.py`

A new config needs a line in configs/results.yml. `--count` counts the parameters and FLOPs that are missing there. It
takes some seconds per config.
"""

import argparse
import re
from pathlib import Path
from typing import Any

import yaml

from tokennorm.base.published import published_detector

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / 'configs' / 'results.yml'
IMAGE = {'coco': (800, 1280), 'in1k': (224, 224), 'in21k': (224, 224)}  # height and width at which FLOPs are counted
PAPER = 'Reported by the DTN paper'
DTN_PAPER = 'Dynamic Token Normalization (https://arxiv.org/abs/2112.02624), Table'
COLLECTIONS = {
    'pvt': ('PVT', 'PyramidVisionTransformer', 'https://arxiv.org/abs/2102.12122'),
    'pvt_v2': ('PVTv2', 'PyramidVisionTransformerV2', 'https://arxiv.org/abs/2106.13797'),
    'swin': ('Swin', 'Swin Transformer', 'https://arxiv.org/abs/2103.14030'),
    'vit': ('ViT', 'Vision Transformer with a simple feature pyramid', 'https://arxiv.org/abs/2203.16527'),
    'timm': ('timm', 'Backbones of timm', 'https://github.com/huggingface/pytorch-image-models'),
    'imagenet': ('ImageNet pretraining', 'Vision transformer classifiers', 'https://arxiv.org/abs/2112.02624'),
}
NAME = re.compile(
    r'(?:(?P<detector>retinanet|mask-rcnn)_)?(?P<backbone>.+?)(?P<variant>(?:-dtn)?(?:-dpn)?)_(?:[sf]pn_)?'
    r'(?P<schedule>.+)_(?P<data>coco|in1k|in21k)'
)
VARIANTS = {'': 'LN', '-dtn': 'DTN', '-dpn': 'DPN', '-dtn-dpn': 'DTN+DPN'}

Entry = dict[str, Any]


def read_results() -> dict[str, dict[str, Entry]]:
    """The entries of configs/results.yml: folder, name of the config, entry."""
    return yaml.safe_load(RESULTS.read_text(encoding='utf-8'))


def results_text(results: dict[str, dict[str, Entry]]) -> str:
    """The text of configs/results.yml: its heading, and one line per config."""
    text = ''.join(
        line for line in RESULTS.read_text(encoding='utf-8').splitlines(keepends=True) if line.startswith('#')
    )
    for folder, entries in results.items():
        text += f'{folder}:\n'
        for name, entry in entries.items():
            values = yaml.safe_dump(entry, default_flow_style=True, sort_keys=False, width=10**6).strip()
            text += f'  {name}: {values}\n'
    return text


def metafile(folder: str, entries: dict[str, Entry]) -> dict[str, Any]:
    """The content of a folder's metafile.yml, in OpenMMLab's layout."""
    collection, architecture, url = COLLECTIONS[folder]
    data = 'ImageNet-1k' if folder == 'imagenet' else 'COCO'
    models = []
    for name, entry in entries.items():
        epochs = entry.get('epochs', 300 if folder == 'imagenet' else 12)
        counts = {key: entry[key.lower()] for key in ('Parameters', 'FLOPs') if key.lower() in entry}
        model = {
            'Name': name,
            'In Collection': collection,
            'Config': f'configs/{folder}/{name}.py',
            'Metadata': {'Epochs': epochs, **counts},
        }
        if 'paper' in entry:
            source = f'{DTN_PAPER} {entry["table"]}'
            model[PAPER] = {'Source': source, 'Results': metrics(data, entry['paper'])}
        if 'measured' in entry:
            model['Results'] = metrics(data, entry['measured'])
        models.append(model)
    about = {
        'Name': collection,
        'Metadata': {
            'Training Data': data,
            'Training Techniques': ['AdamW', 'Weight Decay'],
            'Architecture': [architecture],
        },
        'Paper': {'URL': url},
        'README': 'README.md',
    }
    return {'Collections': [about], 'Models': models}


def metrics(data: str, values: list[float]) -> list[dict[str, Any]]:
    """Values in the order of configs/results.yml, in OpenMMLab's layout."""
    if data == 'ImageNet-1k':
        found = dict(zip(('Top 1 Accuracy', 'Top 5 Accuracy'), values, strict=False))
        return [{'Task': 'Image Classification', 'Dataset': data, 'Metrics': found}]
    tasks = (('Object Detection', 'box AP'), ('Instance Segmentation', 'mask AP'))
    return [
        {'Task': task, 'Dataset': data, 'Metrics': {metric: value}}
        for (task, metric), value in zip(tasks, values, strict=False)
    ]


HEADING = """# Model zoo

{count} configs; [how to choose one](guides/configs.md). Nothing here was trained on COCO or ImageNet: results on these
are their authors'.

- The first link of a row is LayerNorm with the plain stem; **DTN**, **DPN**, **h4458**, **local**, **1xb2** are
  [its variants](guides/configs.md#names).
- **Parameters, FLOPs** of the first: millions, and billions of multiply-adds for one image, detectors at 800 x 1280
  pixels (Mask R-CNN with 1000 proposals and 100 masks), classifiers at 224 x 224.
- **DTN paper:** AP on COCO val2017, box or box/mask, or top-1 accuracy on ImageNet-1k, of LayerNorm and DTN.
- **COCO weights:** AP of the published weights that the first loads. Others load ImageNet weights or yours.

## Own photographs, demo, pretraining on a CPU, segmentation

{others}
"""
OTHERS = {  # folders and names without a metafile: what they are for, and a result
    'trial': 'your own photographs on a CPU ([what to expect](get_started/expect.md))',
    'demo/retinanet_pvt-mini-dtn-dpn_fpn_shapes': '`make demo`, AP 43.1 on generated images',
    'demo/retinanet_pvt-mini_fpn_shapes': '`make demo CONTROL=1`, AP 42.0',
    'demo/retinanet_pvt-mini-dtn_fpn_bccd': 'blood cells, AP 47.0 after 24 of 60 epochs',
    'demo/retinanet_pvt-mini_fpn_bccd': 'the same with LayerNorm, not measured',
    'demo/mask-rcnn_pvt-mini_fpn_nuclei': 'nuclei; with DTN and DPN after 3 epochs AP 28.2, mask AP 29.1',
    'pretrain': '[pretraining](guides/pretrain.md) on a CPU',
    'fine_tune': "mmdet's COCO weights on your own photographs ([`--model`](guides/weights.md#on-a-cpu)), not trained",
    'detectors': "[other detectors](guides/migrate.md#more-detectors) on TokenNorm's backbones, not trained",
    'segmentation': '[semantic segmentation](guides/migrate.md#segmentation), not trained',
}
FOOTER = """
The learning rate of 0.001 on ImageNet is [the paper's 0.0005 by DeiT's rule](study/reproduction.md). `star` is
ViT-T\\*, -S\\* or -B\\* of the DTN paper; `p32` has patches of 32 x 32 pixels; `augreg` is big_vision's recipe, for
Dual PatchNorm; `release` is that of the DTN authors' code.
"""


def model_and_variant(name: str) -> tuple[str, str]:
    """The name of a config without what its variant adds, and the variant."""
    parts = NAME.fullmatch(name)
    variant, model = VARIANTS[parts['variant']], name.replace(f'{parts["variant"]}_', '_', 1)
    for mark, of_mark in (('-h4458', 'h4458'), ('-local', 'local')):
        if mark in model:
            return model.replace(mark, ''), of_mark if variant == 'LN' else f'{of_mark} {variant}'
    return (model.replace('1xb2-accum8-', ''), '1xb2') if 'accum' in model else (model, variant)


def index(results: dict[str, dict[str, Entry]]) -> str:
    """The text of docs/configs.md: a row per model, with a mark for each of its configs."""
    configs = [path for path in (ROOT / 'configs').glob('*/*.py') if path.parent.name != '_base_']
    others = ''
    for key, purpose in OTHERS.items():
        names = sorted(path.stem for path in configs if key in (path.parent.name, f'{path.parent.name}/{path.stem}'))
        links = ', '.join(f'[{name}](../configs/{key.partition("/")[0]}/{name}.py)' for name in names)
        others += f'- {links}: {purpose}\n'
    text = HEADING.format(count=len(configs), others=others.strip())
    for folder, (title, _, _) in COLLECTIONS.items():
        models: dict[str, dict[str, str]] = {}
        for name in results[folder]:
            model, variant = model_and_variant(name)
            models.setdefault(model, {})[variant] = name
        paper = any('paper' in entry for entry in results[folder].values())
        columns = ['configs', 'parameters, FLOPs', *(['DTN paper'] * paper)]
        coco = {model: published_detector(model) for model in models}
        columns += ['COCO weights'] * any(coco.values())
        text += f'\n## {title}\n\n| {" | ".join(columns)} |\n{"|---" * len(columns)}|\n'
        for model, variants in models.items():
            entries = [results[folder][variants[one]] for one in ('LN', 'DTN') if one in variants]
            first, *_ = variants.values()
            marks = (
                f'[{name if name == first else one}](../configs/{folder}/{name}.py)' for one, name in variants.items()
            )
            counts = results[folder][first]
            cells = [' '.join(marks), f'{counts["parameters"] / 1e6:.1f}, {counts["flops"] / 1e9:.1f}']
            kept = 1 if folder == 'imagenet' else None
            stated = [entry['paper'][:kept] for entry in entries if 'paper' in entry]
            cells += [', '.join('/'.join(f'{value:.1f}' for value in values) for values in stated)] * paper
            if 'COCO weights' in columns:
                aps = [coco[model].box_ap, coco[model].mask_ap] if coco[model] else []
                cells.append('/'.join(f'{ap:.1f}' for ap in aps if ap is not None))
            text += f'| {" | ".join(cells)} |\n'
    return text + FOOTER


def generated(results: dict[str, dict[str, Entry]]) -> dict[Path, str]:
    """The text of each generated file."""
    heading = '# Written by tools/write_metafiles.py\n'
    files = {
        ROOT / 'configs' / folder / 'metafile.yml': heading + yaml.safe_dump(metafile(folder, entries), sort_keys=False)
        for folder, entries in results.items()
    }
    return files | {ROOT / 'docs' / 'configs.md': index(results)}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--count', action='store_true', help='count the missing parameters and FLOPs')
    args = parser.parse_args(argv)
    results = read_results()
    if args.count:
        from flops import count
        from mmengine import Config

        for folder, entries in results.items():
            for name, entry in entries.items():
                if 'flops' not in entry:
                    cfg = Config.fromfile(ROOT / 'configs' / folder / f'{name}.py')
                    entries[name] = count(cfg, IMAGE[NAME.fullmatch(name)['data']]) | entry
                    RESULTS.write_text(results_text(results), encoding='utf-8')
    for path, text in generated(results).items():
        path.write_text(text, encoding='utf-8')


if __name__ == '__main__':
    main()
