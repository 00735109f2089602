"""Lists the configs of this package: name, norm, stem, parameters, FLOPs, the DTN paper's AP and that of COCO weights.

COCO weights are those that `--init coco` loads (`tokennorm weights`). For your own data `tokennorm train --data DIR`
chooses a config.

examples:
  tokennorm configs
  tokennorm configs 'mask-rcnn_*-dtn_*'
"""

from fnmatch import fnmatch
from typing import Any

from tokennorm.cli.command import command, make_parser
from tokennorm.config_paths import CONFIGS, config_files
from tokennorm.messages import did_you_mean
from tokennorm.published import published_detector

PAPER = 'Reported by the DTN paper'
HEADER = ('config', 'norm', 'stem', 'params (M)', 'FLOPs (G)', 'AP: paper', 'AP: COCO weights')
_NORMS = {'efficientnet': 'BatchNorm', '-dtn': 'DTN', '-local': 'LocalLayerNorm'}  # by parts of names
_METRICS = ('box AP', 'mask AP', 'Top 1 Accuracy')


@command
def main(argv: list[str]) -> None:
    parser = make_parser(__doc__)
    parser.add_argument('pattern', nargs='?', default='*', help='such as swin, pvt-t or "mask-rcnn_*-dtn_*"')
    args = parser.parse_args(argv)
    rows = config_rows(args.pattern)
    if not rows:
        names = sorted({word for path in config_files() for word in path.stem.split('_')})
        raise SystemExit(f'error: no config matches {args.pattern!r}{did_you_mean(args.pattern, names)}')
    columns = [column for column in zip(HEADER, *rows, strict=True) if set(column[1:]) != {'-'}]
    print(aligned(list(zip(*columns, strict=True))))
    if columns[-1][0].startswith('AP'):
        print(
            '\nAP: box, or box / mask, as the authors state; of classifiers top-1 accuracy. Nothing was measured here.'
        )


def config_rows(pattern: str) -> list[tuple[str, ...]]:
    """Returns a row per config whose name, with its folder, matches a pattern or contains it."""
    entries = metafile_entries()
    paths = [(path, path.relative_to(CONFIGS).with_suffix('').as_posix()) for path in config_files()]
    return [
        _row(name, entries.get(path.stem, {}))
        for path, name in paths
        if fnmatch(name, pattern) or fnmatch(path.stem, pattern) or pattern in name
    ]


def metafile_entries() -> dict[str, dict[str, Any]]:
    """Returns the models of all metafiles by name."""
    import yaml

    files = [yaml.safe_load(path.read_text()) for path in sorted(CONFIGS.glob('*/metafile.yml'))]
    return {model['Name']: model for file in files for model in file['Models']}


def aligned(rows: list[tuple[str, ...]]) -> str:
    """Returns rows as lines whose columns have equal widths."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return '\n'.join('  '.join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _row(name: str, entry: dict[str, Any]) -> tuple[str, ...]:
    metadata = entry.get('Metadata', {})
    return (
        name,
        next((norm for part, norm in _NORMS.items() if part in name), 'LayerNorm'),
        'DPN' if '-dpn' in name else 'plain',
        _number(metadata.get('Parameters'), 1e6),
        _number(metadata.get('FLOPs'), 1e9),
        _metrics(entry.get(PAPER, {})),
        _of_weights(name),
    )


def _number(value: float | None, unit: float) -> str:
    return '-' if value is None else f'{value / unit:.1f}'


def _metrics(of: dict[str, Any]) -> str:
    metrics = {key: value for result in of.get('Results', []) for key, value in result['Metrics'].items()}
    return ' / '.join(f'{metrics[key]:.1f}' for key in _METRICS if key in metrics) or '-'


def _of_weights(name: str) -> str:
    published = published_detector(name)
    found = (published.box_ap, published.mask_ap) if published else ()
    return ' / '.join(f'{ap:.1f}' for ap in found if ap is not None) or '-'
