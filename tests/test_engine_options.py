"""Entries of a config are set by the paths of their keys."""

from mmengine.config import Config

from tokennorm.config_files import use_options


def config():
    return Config(
        dict(
            model=dict(backbone=dict(type='tokennorm.PVT', init_cfg=None), test_cfg=dict(score_thr=0.05)),
            train_cfg=dict(max_epochs=12),
            pipeline=[dict(type='A', scale=1), dict(type='B')],
        )
    )


def test_entries_are_set_and_may_be_new():
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
    use_options(cfg, options | {'my_note': 1})
    assert (cfg.model.backbone.drop_path_rate, cfg.model.backbone.stem_cfg.type) == (0.2, 'DualPatchEmbed')
    assert (cfg.train_cfg.max_epochs, cfg.pipeline[0].scale, cfg.pipeline[1].type) == (3, 2, 'B')
    assert (cfg.randomness.seed, cfg.resume) == (1, True)
