"""PVT-Tiny with LayerNorm on ImageNet-1k by the recipe of the DTN authors' code, which differs from DeiT's in

- no mixup, no CutMix and no random erasing;
- an average of the weights (EMA), 0.99996, which is what validation measures;
- 10 epochs at the last rate after the cosine;
- weight decay for DTN's P.
"""

_base_ = './pvt-tiny_8xb128_in1k.py'

train_pipeline = [step for step in _base_.train_pipeline if step.type != 'RandomErasing']

model = dict(train_cfg=None)
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
train_cfg = dict(max_epochs=310)
custom_hooks = [dict(type='EMAHook', momentum=4e-5, priority='ABOVE_NORMAL')]
