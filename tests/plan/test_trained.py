"""What a detector was trained with besides its weights: image size and anchors."""

import pytest
from mmengine.config import Config

from tests.helpers.configs import anchors_config
from tokennorm.config.paths import config as config_path
from tokennorm.plan.changes import Plan
from tokennorm.plan.image_size import set_image_size, short_side
from tokennorm.plan.trained import note_sizes, use_trained_anchors, use_trained_size


@pytest.mark.parametrize('name', ['retinanet_pvt-mini-dtn_fpn', 'mask-rcnn_pvt-mini_fpn'])
def test_anchors_go_with_the_weights(name):
    head, key, value = (
        ('rpn_head', 'scales', [2, 4]) if name.startswith('mask') else ('bbox_head', 'octave_base_scale', 1.5)
    )
    trained, cfg = (Config.fromfile(config_path(name)) for _ in range(2))
    trained.model[head].anchor_generator[key] = value
    note_sizes(Plan(trained), own_data=True)
    meta = trained.val_dataloader.dataset.metainfo
    assert 'anchors' in trained.train_dataloader.dataset.metainfo
    path = f'model.{head}.anchor_generator.{key}'

    def changed(cfg, meta, options=None):
        use_trained_anchors(plan := Plan(cfg, options), meta)
        return {one.path: one.value for one in plan.changes if one.path not in (options or {})}

    assert changed(cfg, meta) == {path: value}
    assert cfg.model[head].anchor_generator[key] == value
    assert changed(cfg, meta) == {}
    assert changed(Config.fromfile(config_path(name)), meta, {path: [8] if key == 'scales' else 8}) == {}
    assert changed(Config(dict(model=dict(type='DETR'))), meta) == {}
    # a checkpoint of others sets sizes of anchors only
    for other in (['model.backbone', dict(type='os.system')], [path, 'x'], [path], {'a': 1}, 'x', [None, 1]):
        assert changed(cfg, dict(anchors=other)) == {}


def test_notes_follow_the_config_of_an_earlier_run():
    """Its config is trained again with another image size and other anchors, without --data."""
    cfg = Config.fromfile(config_path('retinanet_pvt-mini-dtn_fpn'))
    note_sizes(Plan(cfg), own_data=False)
    assert not {'image_size', 'anchors'} & set(cfg.val_dataloader.dataset.get('metainfo') or ())
    path = 'model.bbox_head.anchor_generator.octave_base_scale'
    cfg.val_dataloader.dataset.metainfo = dict(image_size=128, anchors=[path, 1.5])  # as the first run noted them
    set_image_size(cfg, 320)
    cfg.merge_from_dict({path: 3})
    note_sizes(Plan(cfg), own_data=False)
    meta = cfg.train_dataloader.dataset.metainfo  # which the checkpoints keep
    assert (meta.image_size, list(meta.anchors)) == (320, [path, 3])


def test_the_trained_size_is_used_unless_the_user_sets_the_pipeline():
    cfg = anchors_config()
    set_image_size(cfg, 320)
    use_trained_size(Plan(cfg), dict(classes=('a',)))
    assert short_side(cfg) == 320
    pipeline = cfg.test_dataloader.dataset.pipeline
    for key, value in (('pipeline.1.scale', (533, 320)), ('pipeline', pipeline)):  # by --cfg-options
        use_trained_size(Plan(cfg, {f'test_dataloader.dataset.{key}': value}), dict(image_size=640))
        assert short_side(cfg) == 320
    use_trained_size(Plan(cfg, {'test_dataloader.batch_size': 1}), dict(image_size=640))
    assert cfg.test_dataloader.dataset.pipeline[1].scale == (1066, 640)
