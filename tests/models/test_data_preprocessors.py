"""The preprocessor of padded batches."""

import torch
from mmdet.structures import DetDataSample

from tokennorm.images.padding import image_sizes_of
from tokennorm.models.data_preprocessors import DetDataPreprocessor
from tokennorm.registry import MODELS


def test_the_preprocessor_notes_the_sizes():
    preprocessor = MODELS.build(
        dict(type='tokennorm.DetDataPreprocessor', mean=[1, 2, 3], std=[4, 5, 6], pad_size_divisor=32)
    )
    assert isinstance(preprocessor, DetDataPreprocessor)
    samples = [DetDataSample(metainfo=dict(img_shape=shape)) for shape in ((50, 60), (33, 70))]
    data = dict(inputs=[torch.zeros(3, 50, 60, dtype=torch.uint8), torch.zeros(3, 33, 70, dtype=torch.uint8)])
    processed = preprocessor(data | dict(data_samples=samples))
    inputs = processed['inputs']
    assert inputs.shape == (2, 3, 64, 96)
    assert image_sizes_of(inputs).tolist() == [[50, 60], [33, 70]]
    assert processed['data_samples'][0].batch_input_shape == (64, 96), 'what mmdet does is done'
