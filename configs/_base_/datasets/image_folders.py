"""Images to classify, one folder a class, below `train` and `val` of the config's data_root."""

data_preprocessor = dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], to_rgb=True)
test_pipeline = [dict(type='LoadImageFromFile'), dict(type='PackInputs')]
train_dataloader = dict(
    dataset=dict(type='CustomDataset', data_prefix='train'),
    sampler=dict(type='DefaultSampler', shuffle=True),
)
val_dataloader = dict(
    dataset=dict(type='CustomDataset', data_prefix='val', pipeline=test_pipeline),
    sampler=dict(type='DefaultSampler', shuffle=False),
)
val_evaluator = dict(type='Accuracy', topk=(1, 5))
test_dataloader = val_dataloader
test_evaluator = val_evaluator
