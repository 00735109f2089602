"""A classifier with one linear layer on the backbone, trained on smoothed labels."""

model = dict(
    type='ImageClassifier',
    head=dict(
        type='LinearClsHead',
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02),
    ),
)
