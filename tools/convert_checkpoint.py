"""Converts a backbone's checkpoint, of whatever known layout, to our keys:
`python tools/convert_checkpoint.py SOURCE OUT --config CONFIG`.

The file holds what the config's backbone takes from SOURCE, positions and bias tables at its sizes, but nothing that
the config's `init_cfg.allow_missing` lets keep a random start. It is for `init_cfg`, which also takes SOURCE itself.
"""

import argparse
from fnmatch import fnmatchcase
from pathlib import Path

from mmengine.config import Config

from tokennorm.checkpoints import CheckpointError, load_pretrained
from tokennorm.checkpoints.layouts import layouts_of
from tokennorm.checkpoints.loading import parse_init_cfg
from tokennorm.checkpoints.writing import to_bytes, write_new
from tokennorm.registry import MODELS
from tokennorm.version import __version__


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('source', help='file, address, or work folder of a training')
    parser.add_argument('out', type=Path, help='file to write; it must not be there')
    parser.add_argument('--config', required=True, type=Path, help='config of a model whose backbone it is for')
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    try:
        if args.out.exists():
            raise FileExistsError(f'{args.out} already exists; remove it or name another file')
        backbone = Config.fromfile(args.config).get('model', {}).get('backbone', {}).to_dict()
        init_cfg = dict(backbone.pop('init_cfg', None) or {}, type='Pretrained', checkpoint=args.source)
        model = MODELS.build(backbone)
        if not layouts_of(model):
            raise CheckpointError(f'{backbone["type"]} in {args.config} takes its checkpoints as they are')
        source, allow_missing = parse_init_cfg(init_cfg)
        report = load_pretrained(model, source, allow_missing=allow_missing)
        state_dict = model.state_dict()
        for key in report.missing:
            if any(fnmatchcase(key, pattern) for pattern in allow_missing):
                del state_dict[key]
        meta = dict(
            source=Path(report.source).name, layout=report.layout, backbone=backbone, tokennorm_version=__version__
        )
        write_new(args.out, to_bytes(dict(state_dict=state_dict, meta=meta)))
    except (OSError, RuntimeError, ValueError) as error:
        raise SystemExit(f'error: {error}') from None
    print(f'{report}\n{args.out}: {len(state_dict)} tensors')


if __name__ == '__main__':
    main()
