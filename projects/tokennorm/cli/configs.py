"""Lists the configs of this package: name, norm, stem, parameters, FLOPs, the DTN paper's AP and that of COCO weights.

COCO weights are those that `--init coco` loads (`tokennorm weights`). For your own data `tokennorm train --data DIR`
chooses a config.

examples:
  tokennorm configs
  tokennorm configs 'mask-rcnn_*-dtn_*'
"""

from fnmatch import fnmatch

from tokennorm.base.console import say, table
from tokennorm.base.messages import did_you_mean
from tokennorm.base.published import published_detector
from tokennorm.cli.command import Parser, add_json, command, print_json
from tokennorm.config.paths import CONFIGS, config_files

HEADER = ('config', 'norm', 'stem', 'params (M)', 'FLOPs (G)', 'AP: paper', 'AP: COCO weights')
_NORMS = {'efficientnet': 'BatchNorm', '-dtn': 'DTN', '-local': 'LocalLayerNorm'}  # by parts of names


def build_parser() -> Parser:
    parser = Parser(__doc__)
    parser.add_argument('pattern', nargs='?', default='*', help='such as swin, pvt-t or "mask-rcnn_*-dtn_*"')
    add_json(parser)
    return parser


@command
def main(argv: list[str]) -> None:
    args = build_parser().parse_args(argv)
    rows = config_rows(args.pattern)
    if not rows:
        names = sorted({word for path in config_files() for word in path.stem.split('_')})
        raise SystemExit(f'error: no config matches {args.pattern!r}{did_you_mean(args.pattern, names)}')
    if args.json:
        print_json([dict(zip(HEADER, row, strict=True)) for row in rows])
    say(table([HEADER, *rows]))
    say('\nAP: box, or box / mask, as the authors state; of classifiers top-1 accuracy. Nothing was measured here.')


def config_rows(pattern: str) -> list[tuple[str, ...]]:
    """Returns a row per config whose name, with its folder, matches a pattern or contains it."""
    import yaml

    files = [yaml.safe_load(path.read_text(encoding='utf-8')) for path in sorted(CONFIGS.glob('*/metafile.yml'))]
    entries = {model['Name']: model for file in files for model in file['Models']}
    rows = []
    for path in config_files():
        name, entry = path.relative_to(CONFIGS).with_suffix('').as_posix(), entries.get(path.stem, {})
        if not (fnmatch(name, pattern) or fnmatch(path.stem, pattern) or pattern in name):
            continue
        norm = next((norm for part, norm in _NORMS.items() if part in name), 'LayerNorm')
        metadata, published = entry.get('Metadata', {}), published_detector(name)
        costs = [(metadata.get(key), unit) for key, unit in (('Parameters', 1e6), ('FLOPs', 1e9))]
        results = entry.get('Reported by the DTN paper', {}).get('Results', [])
        metrics = {key: value for result in results for key, value in result['Metrics'].items()}
        of_paper = [metrics.get(key) for key in ('box AP', 'mask AP', 'Top 1 Accuracy')]
        of_weights = [published.box_ap, published.mask_ap] if published else []
        texts = [' / '.join(f'{ap:.1f}' for ap in aps if ap is not None) or '-' for aps in (of_paper, of_weights)]
        texts = ['-' if value is None else f'{value / unit:.1f}' for value, unit in costs] + texts
        rows.append((name, norm, 'DPN' if '-dpn' in name else 'plain', *texts))
    return rows
