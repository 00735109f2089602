"""Lists the configs of this package: name, norm, stem, parameters, FLOPs, the DTN paper's AP and that of COCO weights.

COCO weights are those that `--init coco` loads (`tokennorm weights`). For your own data `tokennorm train --data DIR`
chooses a config.

examples:
  tokennorm configs
  tokennorm configs 'mask-rcnn_*-dtn_*'
"""

from fnmatch import fnmatch
from typing import Any

from tokennorm.cli.command import Parser, command
from tokennorm.config.paths import CONFIGS, config_files
from tokennorm.messages import did_you_mean
from tokennorm.published import published_detector

PAPER = 'Reported by the DTN paper'
HEADER = ('config', 'norm', 'stem', 'params (M)', 'FLOPs (G)', 'AP: paper', 'AP: COCO weights')
_NORMS = {'efficientnet': 'BatchNorm', '-dtn': 'DTN', '-local': 'LocalLayerNorm'}  # by parts of names
_UNITS = dict(Parameters=1e6, FLOPs=1e9)
_METRICS = ('box AP', 'mask AP', 'Top 1 Accuracy')


@command
def main(argv: list[str]) -> None:
    parser = Parser(__doc__)
    parser.add_argument('pattern', nargs='?', default='*', help='such as swin, pvt-t or "mask-rcnn_*-dtn_*"')
    args = parser.parse_args(argv)
    rows = config_rows(args.pattern)
    if not rows:
        names = sorted({word for path in config_files() for word in path.stem.split('_')})
        raise SystemExit(f'error: no config matches {args.pattern!r}{did_you_mean(args.pattern, names)}')
    print(aligned([HEADER, *rows]))
    print('\nAP: box, or box / mask, as the authors state; of classifiers top-1 accuracy. Nothing was measured here.')


def config_rows(pattern: str) -> list[tuple[str, ...]]:
    """Returns a row per config whose name, with its folder, matches a pattern or contains it."""
    import yaml

    files = [yaml.safe_load(path.read_text()) for path in sorted(CONFIGS.glob('*/metafile.yml'))]
    entries = {model['Name']: model for file in files for model in file['Models']}
    paths = [(path, path.relative_to(CONFIGS).with_suffix('').as_posix()) for path in config_files()]
    return [
        _row(name, entries.get(path.stem, {}))
        for path, name in paths
        if fnmatch(name, pattern) or fnmatch(path.stem, pattern) or pattern in name
    ]


def aligned(rows: list[tuple[str, ...]]) -> str:
    """Returns rows as lines whose columns have equal widths."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return '\n'.join('  '.join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _row(name: str, entry: dict[str, Any]) -> tuple[str, ...]:
    metadata, published = entry.get('Metadata', {}), published_detector(name)
    results = entry.get(PAPER, {}).get('Results', [])
    metrics = {key: value for result in results for key, value in result['Metrics'].items()}
    of_weights = (published.box_ap, published.mask_ap) if published else ()
    return (
        name,
        next((norm for part, norm in _NORMS.items() if part in name), 'LayerNorm'),
        'DPN' if '-dpn' in name else 'plain',
        *(f'{metadata[key] / unit:.1f}' if key in metadata else '-' for key, unit in _UNITS.items()),
        ' / '.join(f'{metrics[key]:.1f}' for key in _METRICS if key in metrics) or '-',
        ' / '.join(f'{ap:.1f}' for ap in of_weights if ap is not None) or '-',
    )
