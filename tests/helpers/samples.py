"""Data samples for losses."""

import torch
from mmdet.structures import DetDataSample
from mmdet.structures.mask import BitmapMasks
from mmengine.structures import InstanceData


def sample_with_two_objects():
    masks = torch.zeros(2, 96, 128, dtype=torch.uint8)
    masks[0, 8:60, 10:70], masks[1, 30:90, 64:120] = 1, 1
    sample = DetDataSample(metainfo=dict(img_shape=(96, 128), batch_input_shape=(96, 128), pad_shape=(96, 128)))
    sample.gt_instances = InstanceData(
        bboxes=torch.tensor([[10.0, 8, 70, 60], [64, 30, 120, 90]]),
        labels=torch.tensor([1, 5]),
        masks=BitmapMasks(masks.numpy(), 96, 128),
    )
    sample.ignored_instances = InstanceData(bboxes=torch.zeros(0, 4), labels=torch.zeros(0, dtype=torch.long))
    return sample
