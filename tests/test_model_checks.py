"""A neck that does not take the backbone's maps, and an optimizer that does not exist, are found before training."""

import pytest
from torch import nn

from tokennorm.backbones import PVT
from tokennorm.model_checks import check_neck, check_optimizer, check_runner_type


class Detector(nn.Module):
    def __init__(self, **kwargs):
        super().__init__()
        arch = dict(
            embed_dims=(8, 16, 24), depths=(1,) * 3, num_heads=(1,) * 3, mlp_ratios=(1,) * 3, sr_ratios=(1,) * 3
        )
        self.backbone = PVT(arch, pretrain_img_size=32, **kwargs)


def test_channels_that_fit_pass():
    check_neck(Detector(), dict(type='FPN', in_channels=[8, 16, 24]))
    check_neck(Detector(out_indices=(1, 2)), [dict(type='FPN', in_channels=[16, 24]), dict(type='BFP', in_channels=5)])
    check_neck(Detector(out_indices=(2,)), dict(type='SimpleFeaturePyramid', in_channels=24))
    check_neck(Detector(), dict(type='DilatedEncoder', in_channels=24))  # which takes the last map
    check_neck(Detector(), dict(type='GlobalAveragePooling'))
    check_neck(Detector(), None)
    check_neck(nn.Module(), dict(in_channels=[1]))


@pytest.mark.parametrize(
    ('in_channels', 'out_indices', 'message'),
    [
        ([8, 16, 32], None, r'model.neck: in_channels=\[8, 16, 32\], but .* PVT .*: set it to \[8, 16, 24\]'),
        ([8, 16, 24], (1, 2), r'channels \[16, 24\]: set it to \[16, 24\]'),
        (16, None, r'in_channels=16, but .*: set it to 24'),
    ],
)  # fmt: skip
def test_others_are_named(in_channels, out_indices, message):
    with pytest.raises(ValueError, match=message):
        check_neck(Detector(out_indices=out_indices), dict(type='FPN', in_channels=in_channels))


def test_the_optimizer_exists():
    check_optimizer(dict(type='OptimWrapper', optimizer=dict(type='AdamW')))
    check_optimizer(None)
    with pytest.raises(ValueError, match=r"optim_wrapper.optimizer: no type 'AdamV' \(did you mean Adam.?\?\)"):
        check_optimizer(dict(optimizer=dict(type='AdamV')))


def test_runners_whose_checkpoints_cannot_be_relied_upon():
    check_runner_type({})
    check_runner_type(dict(runner_type='mine.Runner'))
    with pytest.raises(ValueError, match=r"runner_type='FlexibleRunner' with strategy FSDPStrategy is not supported"):
        check_runner_type(dict(runner_type='FlexibleRunner', strategy=dict(type='FSDPStrategy')))
    with pytest.raises(ValueError, match=r"runner_type='FlexibleRunner' .* is not supported"):
        check_runner_type(dict(runner_type='mmengine.FlexibleRunner'))
    with pytest.raises(ValueError, match=r"model_wrapper_cfg.type='MMFullyShardedDataParallel' is not supported"):
        check_runner_type(dict(model_wrapper_cfg=dict(type='MMFullyShardedDataParallel')))
    check_runner_type(dict(model_wrapper_cfg=dict(type='MMSeparateDistributedDataParallel')))
