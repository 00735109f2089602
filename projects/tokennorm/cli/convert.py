"""Converts a backbone's checkpoint of any known layout to TokenNorm's keys, for `init_cfg`.

The file has what the config's backbone loads from SOURCE, with position embeddings and bias tables at its sizes, and
without the parameters that `init_cfg.allow_missing` lets stay initialized. `init_cfg` also accepts SOURCE itself.

examples:
  tokennorm convert pvt_tiny.pth backbone.safetensors --config retinanet_pvt-t_fpn_1x_coco
"""

from fnmatch import fnmatchcase
from pathlib import Path

from tokennorm.cli.command import command, make_parser
from tokennorm.messages import user_errors


@command
def main(argv: list[str]) -> None:
    parser = make_parser(__doc__)
    parser.add_argument('source', help='file, URL, name on the Hugging Face Hub, or work directory of a training run')
    parser.add_argument('out', type=Path, help='file to write, .pth or .safetensors; it must not exist')
    parser.add_argument('--config', required=True, help='config file, or the name of a config, with the backbone')
    args = parser.parse_args(argv)
    with user_errors(OSError, RuntimeError, ValueError):
        print(_convert(args.source, args.out, args.config))


def _convert(source: str, out: Path, config: str) -> str:
    """Writes the converted checkpoint, and returns the loading report."""
    from tokennorm.build_errors import build_errors
    from tokennorm.checkpoints import CheckpointError, load_pretrained
    from tokennorm.checkpoints.layouts import layouts_of
    from tokennorm.checkpoints.loading import parse_init_cfg
    from tokennorm.checkpoints.writing import to_bytes, write_new
    from tokennorm.config_files import read_config
    from tokennorm.config_tree import model_of
    from tokennorm.output_dir import check_output_file
    from tokennorm.registry import MODELS
    from tokennorm.version import __version__

    if out.suffix not in ('.pth', '.safetensors'):
        raise ValueError(f'OUT {out} must end in .pth or .safetensors')
    if out.exists():
        raise FileExistsError(f'{out} already exists; remove it or name another file')
    check_output_file(out)
    backbone = model_of(read_config(config)).get('backbone')
    if not backbone:
        raise ValueError(f'the model of {config} has no backbone')
    backbone = backbone.to_dict()
    init_cfg = dict(backbone.pop('init_cfg', None) or {}, type='Pretrained', checkpoint=source)
    with build_errors():
        model = MODELS.build(backbone)
    if not layouts_of(model):
        raise CheckpointError(f'{backbone["type"]} in {config} loads its checkpoints as they are')
    checkpoint, allow_missing = parse_init_cfg(init_cfg)
    report = load_pretrained(model, checkpoint, allow_missing=allow_missing)
    state_dict = model.state_dict()
    for key in report.missing:
        if any(fnmatchcase(key, pattern) for pattern in allow_missing):
            del state_dict[key]
    meta = dict(source=Path(report.source).name, layout=report.layout, backbone=backbone, tokennorm_version=__version__)
    write_new(out, to_bytes(dict(state_dict=state_dict, meta=meta), out.suffix))
    return f'{report}\n{out}: {len(state_dict)} tensors'
