"""Through `tools/train.py` a mistake in a config ends with what is wrong and no traceback."""

import json
import re

import pytest

from tests.helpers.cases import fast_first
from tests.helpers.commands import tool
from tests.helpers.trained import CONFIG, options
from tokennorm.base.messages import UserError
from tokennorm.config.build_errors import build_errors
from tokennorm.registry import DATASETS, MODELS

MISTAKES = {
    'model.backbone.arch=tinny': r"PVT: arch='tinny' must be one of tiny, small, .* \(did you mean tiny\?\)",
    'model.backbone.type=tokennorm.PVTV2': r"type='tokennorm.PVTV2': there is no such model \(did you mean .*PVTv2\?\)",
    'model.backbone.type=PVTv2': r"type='PVTv2': there is no such model \(did you mean .*PVTv2\?\)",
    'model.type=RetinaNett': r"type='RetinaNett': there is no such model \(did you mean RetinaNet\?\)",
    'model.backbone.token_norm_cfg.type=DNT': r"token_norm_cfg: no type 'DNT' .*LayerNorm.* \(did you mean DTN\?\)",
    'model.backbone.stem_cfg.type=DualPatch': r"no type 'DualPatch' .*PatchEmbed.* \(did you mean DualPatchEmbed\?\)",
    'model.backbone.token_norm_cfg.pool=0': r'DTN: pool=0 must be an integer of at least 1, in tokens',
    'model.backbone.drop_path_rat=0.1': r'model.backbone has no drop_path_rat \(did you mean drop_path_rate\?\)',
    'model.backbone.out_indices=[0,7]': r'PVT: out_indices=.0, 7. must be integers in 0 to 3',
    'model.neck.in_channels=[1,2]': r'model.neck: in_channels=\[1, 2\], but the feature maps of PVT .* 128, 256\]',
    'model.neck.num_outs=1': r'FPN: failed at `assert num_outs >= self.num_ins - start_level`',
    'default_hooks.logger.type=Logger': r"type='Logger': there is no such hook \(did you mean LoggerHook\?\)",
    'default_hooks.mine.interval=1': r"a hook without a type in the config: {'interval': 1}",
    'optim_wrapper.optimizer.type=AdamV': r"type='AdamV': there is no such optimizer \(did you mean",
    'trian_cfg.max_epochs=1': r'--cfg-options: nothing reads trian_cfg \(did you mean train_cfg\?\)',
    'train_cfg.max_epoch=1': r'train_cfg has no max_epoch \(did you mean max_epochs\?\)',
    'train_dataloader.dataset.pipeline.0.type=LoadImage': r"type='LoadImage': there is no such transform",
}  # fmt: skip


FAST = 'model.backbone.arch=tinny', 'model.backbone.type=PVTv2', 'optim_wrapper.optimizer.type=AdamV'


@pytest.mark.parametrize('mistake', fast_first(MISTAKES, *FAST))
def test_mistakes_in_a_config(demo_data, tmp_path, mistake):
    with pytest.raises(SystemExit) as ended:
        tool('train')([CONFIG, '--work-dir', str(tmp_path), '--cfg-options', *options(demo_data), mistake])
    message = str(ended.value)
    assert re.match(f'error: (.*: )?{MISTAKES[mistake]}', message), message
    assert '\n' not in message


def test_a_package_that_a_part_needs_is_named():
    with pytest.raises(UserError, match='Detectron2Wrapper: Please install Detectron2 first'), build_errors():
        MODELS.build(dict(type='mmdet.Detectron2Wrapper', detector={}))


def test_a_dataset_without_an_image_left_is_named(tmp_path):
    path = tmp_path / 'a.json'
    image = dict(id=1, file_name='a.png', width=9, height=9)
    path.write_text(json.dumps(dict(images=[image], annotations=[], categories=[dict(id=1, name='a')])))
    cfg = dict(
        type='mmdet.CocoDataset',
        ann_file=str(path),
        data_prefix=dict(img=''),
        filter_cfg=dict(min_size=32),
        metainfo=dict(classes=('a',)),
    )
    with (
        pytest.raises(UserError, match=r"no image of .*a.json is left by filter_cfg=\{'min_size': 32\}"),
        build_errors(),
    ):
        DATASETS.build(cfg)


def test_a_config_that_cannot_be_read(tmp_path):
    path = tmp_path / 'a.py'
    for text, message in [
        ('model = dict(', r'a.py cannot be read: SyntaxError: .*line 1'),
        ("_base_ = 'none.py'", r'a.py cannot be read: \w+: .*none.py'),
        ('model = 1 / 0', r'a.py cannot be read: ZeroDivisionError'),
        ("custom_imports = dict(imports=['none'])", r'a.py cannot be read: ImportError: .*none.* set `PYTHONPATH`'),
    ]:
        path.write_text(text)
        with pytest.raises(SystemExit, match=message):
            tool('train')([str(path)])
