"""The study at GPU size: 36 trainings on real images, of which each piece is shorter than 8 minutes.

python tools/study.py configs/study/gpu.py

The data is to be put there first: `data/tiny_imagenet100` with `train/<class>/*.jpg` and `val/<class>/*.jpg` (100
classes of Tiny ImageNet), `data/bccd` and `data/nuclei` with `images/` and `annotations/train.json`, `val.json` in COCO
format.
"""

title = 'LayerNorm or DTN, plain stem or Dual PatchNorm, at GPU size'
seeds = (0, 1, 2)
inside = 'retinanet'
stages = dict(
    pretrain=dict(config='gpu/pretrain_pvt-tiny_tiny-imagenet100.py', metric='accuracy/top1'),
    retinanet=dict(config='gpu/retinanet_pvt-tiny_fpn_bccd.py', metric='coco/bbox_mAP', start='pretrain'),
    mask_rcnn=dict(config='gpu/mask-rcnn_pvt-tiny_fpn_nuclei.py', metric='coco/segm_mAP', start='pretrain'),
)
notes = """The learning rates and numbers of epochs are the same for all arms and were tuned for none of them. The
pretraining is on 24,000 images of 64 x 64 pixels, the detection sets have 205 and 531 training images."""
