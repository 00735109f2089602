"""RetinaNet on PVT-mini, blood cells at 320 x 240 pixels, 12 epochs, scored once, on the 72 test images."""

_base_ = '../real/retinanet_bccd.py'

max_epochs = 12
val_dataloader = dict(dataset=dict(ann_file='annotations/test.json'))
test_dataloader = val_dataloader
val_evaluator = dict(ann_file='data/bccd/annotations/test.json')
test_evaluator = val_evaluator
train_cfg = dict(max_epochs=max_epochs, val_interval=max_epochs)
