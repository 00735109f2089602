"""Options that cannot be read or are surely spelt wrong end with what to do; what looks like it is a warning."""

import pytest
from mmengine.config import Config

from tokennorm.config.reading import check_options, merge_options


def config():
    return Config(
        dict(
            model=dict(backbone=dict(type='tokennorm.PVT', init_cfg=None), test_cfg=dict(score_thr=0.05)),
            train_cfg=dict(max_epochs=12),
            pipeline=[dict(type='A', scale=1), dict(type='B')],
        )
    )


def test_entries_are_set_and_new_arguments_pass_in_silence(capsys):
    cfg = config()
    options = {
        'model.backbone.drop_path_rate': 0.2,
        'model.backbone.stem_cfg.type': 'DualPatchEmbed',
        'model.test_cfg.nms_pre': 10,
        'train_cfg.max_epochs': 3,
        'pipeline.0.scale': 2,
        'randomness.seed': 1,
        'resume': True,
    }
    check_options(cfg, options | {'my_note': 1})
    assert capsys.readouterr().out == ''
    merge_options(cfg, options)
    assert (cfg.model.backbone.drop_path_rate, cfg.model.backbone.stem_cfg.type) == (0.2, 'DualPatchEmbed')
    assert (cfg.train_cfg.max_epochs, cfg.pipeline[0].scale, cfg.pipeline[1].type) == (3, 2, 'B')
    assert (cfg.randomness.seed, cfg.resume) == (1, True)


@pytest.mark.parametrize(
    ('key', 'warning'),
    [
        ('model.test_cfg.scor_thr', 'model.test_cfg has no scor_thr (did you mean score_thr?)'),
        ('train_cfg.max_epoch', 'train_cfg has no max_epoch (did you mean max_epochs?)'),
    ],
)
def test_new_keys_beside_similar_ones_are_warnings(key, warning, capsys):
    check_options(config(), {key: 1})
    assert capsys.readouterr().out == f'warning: --cfg-options: {key} is new: {warning}\n'
