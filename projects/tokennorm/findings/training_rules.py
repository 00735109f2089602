"""Rules about configs and checkpoints: what would train another model than was meant, or nothing."""

from tokennorm.findings.rule import Rule

# fmt: off
TRAINING_RULES: tuple[Rule, ...] = (
    # ---- files that a config names
    Rule('missing-annotations', 'error', 'the annotations of a config are not found',
         about='config', can_allow=False, why='There is nothing to train on.',
         do='Set data_root, or put the data there; --data reads COCO, YOLO and Pascal VOC from a folder instead'),
    Rule('class-names', 'error', 'metainfo.classes is text, and names no file',
         about='config', can_allow=False, why='mmdet would take its letters for the names of classes.',
         do="Set a tuple of names, such as ('cat',), or a file with one name per line"),
    Rule('class-order', 'error', 'metainfo.classes and the categories of the annotation file differ',
         about='config', why='mmdet numbers classes in the order of the file, and names them in that of metainfo: each '
                             'AP would be that of another class. Objects of a class that the file lacks are not found.',
         do='Give both the same names in the same order'),
    Rule('unread-entry', 'warning', 'nothing reads an entry of the config',
         about='config', why='It changes nothing: its name is misspelled, or it is a variable that the base of the '
                             'config has used already.',
         do='Correct its name, set the entry that was meant, or remove it'),
    Rule('outside-recipe', 'error', 'this recipe is not made for --data',
         about='config', why='With --data a recipe is rewritten for other classes, sizes and lengths. Recipes of '
                             'teacher and student, of panoptic data and of language models are not understood, nor are '
                             'the lengths of loops that count iterations.',
         do='Name the data in the config, and train it as it is: python tools/train.py CONFIG'),
    # ---- classes
    Rule('head-classes', 'error', 'a head counts other classes than the data has',
         about='config', why='With fewer classes training fails or leaves classes out; the outputs of more are never '
                             'trained.',
         do='Set num_classes to the number of classes'),
    Rule('class-numbers', 'error', 'the splits number a class differently',
         about='config', why='The detector numbers the classes of train; others would be scored as another class.',
         do='Give all datasets the same classes in the same order'),
    # ---- evaluation
    Rule('evaluator-images', 'error', 'an evaluator has other annotations than the images that its loader reads',
         about='config', why='AP would be that of other objects.',
         do='Set ann_file of both to the same file'),
    Rule('unknown-metric', 'error', 'validation does not give a metric that a hook or a scheduler reads',
         about='config', can_allow=False, why='Training would end with a KeyError at the first validation.',
         do='Set one of those that there are'),
    Rule('no-mask-head', 'error', 'validation is by masks, and the model predicts none',
         about='config', can_allow=False, why='Training would end with a KeyError at the first validation.',
         do="Set metric='bbox' of the evaluator, or take a model that learns masks"),
    Rule('low-scores', 'warning', 'detections with scores that AP counts are dropped',
         about='config', why='Configs for deployment drop low scores; AP is then too low.',
         do='Lower score_thr to 0.05 or less'),
    # ---- model
    Rule('neck-channels', 'error', 'the channels of the feature maps are not those that follow',
         about='config', can_allow=False, why='The first step would fail.',
         do='Set in_channels to those of the backbone'),
    Rule('anchor-strides', 'error', 'the anchors have other strides than the feature maps',
         about='config', why='Anchors would lie beside the places that they are for.',
         do='Change out_indices of the backbone, start_level and num_outs of the neck, or the anchors; a backbone with '
            'one feature map needs a patch size of 16 and the neck tokennorm.SimpleFeaturePyramid'),
    Rule('random-frozen', 'error', 'frozen stages would stay random',
         about='config', why='Stages that are not trained need trained weights.',
         do='Set model.backbone.frozen_stages=-1, or name weights with --init'),
    Rule('random-backbone', 'warning', 'the backbone is initialized at random: model.backbone.init_cfg is None',
         about='config', why='Training from random weights needs far more epochs.',
         do='Name weights with --init'),
    # ---- optimizer, hooks and schedule
    Rule('unread-paramwise', 'error', 'nothing reads an entry of optim_wrapper.paramwise_cfg',
         about='config', why='It changes neither a learning rate nor a weight decay.',
         do='Correct its name; rules of another optim_wrapper.constructor need that constructor'),
    Rule('idle-custom-keys', 'warning', 'entries of custom_keys match no parameter that is trained',
         about='config', why='These rules do nothing. They may be those of another backbone or norm.',
         do='Correct or remove them'),
    Rule('late-stages', 'warning', 'stages begin after the last epoch',
         about='config', why='They never happen, such as the switch of a pipeline for the last epochs.',
         do='Lower them, or train longer'),
    Rule('endless-warm-up', 'warning', 'the warm-up is longer than training',
         about='config', why='The learning rate never reaches its value.',
         do='Shorten the warm-up'),
    Rule('no-batch', 'error', 'an epoch has no batch',
         about='config', can_allow=False, why='With drop_last, too few images give no batch, and nothing is trained.',
         do='Use a smaller --batch-size'),
    Rule('lost-objects', 'error', 'the training pipeline leaves no object',
         about='config', why='Nothing would be learned. The sizes of its steps do not fit each other or the images.',
         do='Set them with --cfg-options, or choose another --image-size'),
    # ---- what --data and options change
    Rule('poor-anchors', 'warning', 'anchors that match few of the boxes', about='config',
         why='Objects without a matching anchor are hardly learned.',
         do='Set the sizes that the line names with --cfg-options'),
    Rule('unscaled-size', 'warning', 'entries that look like sizes in pixels, and are not scaled with the image size',
         about='config', why='A crop or a filter of the old size does not fit images of the new one.',
         do='Set them with --cfg-options'),
    Rule('schedule-length', 'warning', 'the learning rate schedule does not end with training', about='config',
         why='The rate may never fall, or fall long before the end. Schedules of that kind exist on purpose.',
         do='Set the ends of param_scheduler, or leave it to --epochs'),
    # ---- exported files
    Rule('padded-norms', 'warning', 'norms of the detector have statistics over positions', about='config',
         why='GroupNorm and InstanceNorm of a neck or a head see the padding of a batch or of a larger canvas; the '
             'normalizers of this package leave it out.',
         do="Export with `--batch-size 1`, give the file images without padding, or train with "
            "norm_cfg=dict(type='tokennorm.LN2d')"),
    Rule('padded-detections', 'warning', 'detections of an image change with the padding around it', about='config',
         why='A server or a phone with one canvas for all images gets other detections than the AP was measured with. '
             'Norms with statistics over positions let padding in, and so do convolutions and attention without '
             '`mask_padding`. It is not a matter of images that are given without padding.',
         do="Export with `--batch-size 1`, give the file images without padding, or train with "
            "model.type='tokennorm.RetinaNet', 'tokennorm.FasterRCNN' or 'tokennorm.MaskRCNN', and "
            "norm_cfg=dict(type='tokennorm.LN2d')"),
    # ---- checkpoints
    Rule('non-finite-weights', 'error', 'the checkpoint has values that are NaN or infinite',
         about='checkpoint', why='Training diverged before it was saved, or the file is damaged. A detector with them '
                                 'finds nothing, without an error. `tokennorm publish` has no `--allow`.',
         do='Use an earlier checkpoint'),
    Rule('other-optimizer', 'error', 'the checkpoint to resume is of another optimizer',
         about='checkpoint', can_allow=False, why='The state of its parameters does not fit.',
         do='Keep its type, paramwise_cfg and frozen stages, as the config in the directory of the run has them, or '
            'start a new run with --init FILE'),
    Rule('checkpoint-classes', 'error', 'the checkpoint was trained with other classes',
         about='checkpoint', why='Its outputs would get the names of other classes.',
         do='Use the data that it was trained for, with --data or the config in its work directory, with its '
            'categories in that order'),
    Rule('no-training-state', 'error', 'the checkpoint has only weights, not the state of a training run',
         about='checkpoint', can_allow=False, why='There is no optimizer to resume.',
         do='To start a new run from them, use --init'),
    Rule('averaged-weights', 'error', 'the weights of the checkpoint are an average, and this run has none',
         about='checkpoint', why='Training would continue from the average instead of the trained weights.',
         do='Add --ema, or start a new run with --init'),
    Rule('partial-weights', 'error', 'the checkpoint lacks most tensors of the backbone',
         about='checkpoint', why='mmengine leaves out what does not fit, and most of the backbone would stay random.',
         do='Use weights of this backbone'),
)
# fmt: on
