"""The whole way: folders of classes, a classifier with DTN, its backbone in a detector, AP."""

import shutil

import pytest
import torch

import tokennorm
from experiments.study.shape_classes import make_shape_classes_dataset
from tokennorm.base.messages import UserError
from tokennorm.checkpoints.locating import newest_checkpoint
from tokennorm.checkpoints.safe_reading import Checkpoint

FEW = {'train_dataloader.batch_size': 4, 'val_dataloader.batch_size': 4, 'default_hooks.logger.interval': 1}


@pytest.mark.slow
def test_a_detector_is_trained_from_an_own_classifier(demo_data, tmp_path, capsys):
    made = make_shape_classes_dataset(tmp_path / 'made', 48, 48, image_size=64)
    for split in ('train', 'val'):
        for name in ('disk-plain', 'square-stripes'):
            shutil.copytree(made / split / name, tmp_path / 'classes' / split / name)
    common = dict(workers=0, epochs=1, seed=1, device='cpu')
    classifier = tokennorm.train(
        'pvt-tiny-dtn_8xb128_in1k',
        tmp_path / 'classes',
        init='none',
        image_size=64,
        work_dir=tmp_path / 'pretrained',
        cfg_options=FEW,
        **common,
    )
    assert 0 <= classifier.metrics['accuracy/top1'] <= 100
    printed = capsys.readouterr().out
    assert 'short side of the images 64 pixels (recipe: 224)' in printed
    weights = Checkpoint.read(classifier.work_dir)
    assert not weights.is_detector
    for name, init in dict(folder=classifier.work_dir, file=classifier.checkpoint).items():
        detector = tokennorm.train(
            'retinanet_pvt-t-dtn_fpn_1x_coco',
            demo_data,
            init=init,
            freeze=4,
            image_size=64,
            work_dir=tmp_path / name,
            cfg_options={'train_dataloader.batch_size': 2},
            **common,
        )
        assert f'Initial weights: the backbone, {init}' in capsys.readouterr().out
        assert 0 <= detector.metrics['coco/bbox_mAP'] <= 1
        trained = Checkpoint.read(newest_checkpoint(detector.work_dir)).state_dict
        frozen = [key for key in trained if key.startswith('backbone.stages') and key in weights.state_dict]
        assert len(frozen) > 50
        changed = [key for key in frozen if not torch.equal(trained[key], weights.state_dict[key])]
        assert changed == ['backbone.stages.3.pos_embed']  # resized, without the class token
    with pytest.raises(UserError, match='frozen_stages'):
        tokennorm.train(
            'retinanet_pvt-t-dtn_fpn_1x_coco',
            demo_data,
            init=classifier.checkpoint,
            work_dir=tmp_path / 'many',
            **common | dict(freeze=9),
        )
