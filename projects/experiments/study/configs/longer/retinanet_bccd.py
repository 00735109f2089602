"""RetinaNet on PVT-mini, blood cells at 320 x 240 pixels, 12 epochs, landscape crops, scored on the 72 test images."""

_base_ = '../evidence/retinanet_bccd.py'

train_pipeline = _base_.train_pipeline
train_pipeline[3].crop_size = (320, 240)  # RandomCrop, (width, height)
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
