"""Each subcommand answers bad arguments with one line and an exit status of 1 or 2, without a traceback."""

import json
import re

import pytest
import torch
from mmengine.registry import init_default_scope
from PIL import Image

import tokennorm
from tokennorm.base.messages import UserError
from tokennorm.cli.main import main
from tokennorm.config.open_config import read_config
from tokennorm.registry import MODELS

CONFIG = 'retinanet_pvt-mini-dtn-dpn_fpn_shapes'


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """An untrained checkpoint with classes, images, and configs that are not whole."""
    folder = tmp_path_factory.mktemp('bad')
    init_default_scope('mmdet')
    state_dict = MODELS.build(read_config(CONFIG).model).state_dict()
    meta = dict(dataset_meta=dict(classes=('disk', 'square', 'triangle', 'star')))
    torch.save(dict(state_dict=state_dict, meta=meta), folder / 'model.pth')
    (folder / 'empty.py').touch()
    (folder / 'number.py').write_text('model = 3')
    (folder / 'file').touch()
    (folder / 'images').mkdir()
    (folder / 'without').mkdir()
    Image.new('RGB', (64, 48)).save(folder / 'images' / 'a.png')
    Image.new('RGB', (3000, 2)).save(folder / 'images' / 'thin.png')
    data = dict(
        images=[dict(id=1, file_name='a.png', width=64, height=48)],
        annotations=[dict(id=1, image_id=1, category_id=1, bbox=[4, 4, 20, 20], area=400, iscrowd=0)],
        categories=[dict(id=1, name='disk')],
    )
    for split in ('train', 'val'):
        (folder / 'data' / split).mkdir(parents=True)
        Image.new('RGB', (64, 48)).save(folder / 'data' / split / 'a.png')
        (folder / 'data' / split / '_annotations.coco.json').write_text(json.dumps(data))
    return folder


def ended(capsys, words, folder):
    """What a command that fails prints to stderr, and its exit status."""
    with pytest.raises(SystemExit) as end:
        main([word.replace('@', str(folder)) for word in words])
    text = capsys.readouterr().err
    return (text + end.value.code, 1) if isinstance(end.value.code, str) else (text, end.value.code)


TRAIN, TEST = ['train', CONFIG], ['test', CONFIG, '@/model.pth']
PREDICT = ['predict', CONFIG, '@/model.pth', '@/images', '--out', '@/out', '--device', 'cpu']
TIMM = 'retinanet_dinov3-vit-s_sfp_1x_coco'
EXPORT = ['export', CONFIG, '@/model.pth']
CASES = [
    # A usage error names the argument and where the arguments are listed.
    (
        ['predict', 'photo.jpg'],
        'photo.jpg is not a detector: name one before it, `tokennorm predict WORK_DIR photo.jpg`',
    ),
    (['predict', '--out', '@/o', 'photo.jpg'], 'photo.jpg is not a detector'),
    (['predict', '@/images'], 'images is not a detector: name one before it'),
    (['predict', 'a.jpg', 'b.jpg'], 'a.jpg is not a detector: name one before it'),
    (['benchmark', 'd.onnx', '--data', '@/data'], 'd.onnx is not a detector: name one before it'),
    (['predict', CONFIG], 'the following arguments are required: PATH'),
    (['compare'], r'required: first, second; `.*--help` lists the arguments'),
    (['train'], 'a config is needed, or --data DIR'),
    ([*TRAIN, '--nope'], 'unrecognized arguments: --nope'),
    ([*TRAIN, '--cfg-options', 'a.b', '=', '1'], "'a.b' has no key or no =; each must be KEY=VALUE without spaces"),
    ([*TRAIN, '--image-size', '640', '480'], 'unrecognized arguments: 480'),
    (['train', '--image-size', '640', '480'], 'config 480 not found .is it a second value of the option before it'),
    (['check', '@/data/train/_annotations.coco.json'], 'name the folder of the annotations and images'),
    (['check', '@/data', '--masks', '--out', '@/sheets'], 'error: 2 problems that would break training or evaluation'),
    ([*TRAIN, '--cfg-options', 'a'], '--cfg-options a cannot be read: .*each must be KEY=VALUE'),
    (
        [*TRAIN, '--cfg-options', 'optim_wraper.optimizer.lr=1'],
        r'nothing reads optim_wraper \(did you mean optim_wrapper\?\)',
    ),
    ([*TRAIN, '--cfg-options', 'model.x={' + '[' * 100_000], r'cannot be read: .*each must be KEY=VALUE'),
    ([*TRAIN, '--cfg-options', "custom_hooks=[{'type':"], r'cannot be read: .*each must be KEY=VALUE'),
    ([*TRAIN, '--cfg-options', 'param_scheduler=[dict(type="X",a=1)]'], r'dict\(...\) is not read: .*KEY.0.type=X'),
    ([*TRAIN, '--cfg-options', 'model.x=dict(type="X")'], r'dict\(...\) is not read: .*KEY.type=X'),
    ([*TRAIN, '--cfg-options', 'model=None'], '--cfg-options: model=None is not the model of a config'),
    ([*TRAIN, '--data', '@/data', '--cfg-options', 'log_level=LOUD'], "the config cannot be used: KeyError: 'LOUD'"),
    ([*EXPORT, '@/o.onnx', '--verify', 'nowhere'], '--verify: nowhere is not a folder'),
    ([*EXPORT, '@/o.pt2', '--verify', '.'], '--verify needs an .onnx or .xml file'),
    ([*EXPORT, '@/o.onnx', '--int8'], '--int8 and --calibrate DIR need each other'),
    ([*EXPORT, '@/o.onnx', '--batch-size', '2'], '--batch-size 2 must be 1, or left out for any number of images'),
    ([*EXPORT, '@/o.pt2', '--batch-size', '1'], '--batch-size 1 writes .onnx and .xml files'),
    ([*EXPORT, '@/o.onnx', '--int8', '--calibrate', '@/without'], 'without has no images; name a folder with some'),
    # Numbers.
    *[([*TRAIN, '--lr', value], f'--lr {value} must be above 0') for value in ('0.0', 'nan')],
    ([*TRAIN, '--epochs', '9' * 40], '--epochs 9* must be an integer of at most 1000000'),
    ([*TRAIN, '--epochs', '0'], '--epochs .*0 must be an integer of at least 1'),
    ([*TRAIN, '--patience', '0'], '--patience 0 must be an integer of at least 1'),
    ([*TRAIN, '--image-size', '31'], '--image-size 31 must be an integer of at least 32'),
    # An empty path is not the working directory.
    ([*PREDICT[:3], ''], 'empty argument after .*model.pth'),
    ([*PREDICT, '--out='], 'empty argument after cpu'),
    ([*TRAIN, '--data', ''], 'empty argument after --data'),
    *[([*PREDICT, '--score-thr', value], '--score-thr .* must be a number from 0 to 1') for value in ('nan', '2')],
    *[
        ([*PREDICT, f'--{name}', '0'], f'--{name} 0 must be an integer of at least 1')
        for name in ('batch-size', 'tiles', 'every')
    ],
    ([*PREDICT, '--overlap', 'nan'], '--overlap nan must be a number from 0 to 1'),
    ([*PREDICT, '--overlap', '1'], '--overlap 1 must be below 1'),
    # Outputs that cannot be written, before anything long begins.
    ([*TEST, '--out', '@/file/x.pkl'], 'cannot write to the folder .*file: .*choose another'),
    ([*TEST, '--out', '@/x.json'], 'x.json must be a folder; --predictions writes a .pkl file'),
    ([*TEST, '--predictions', '@/x.json'], 'must end in .pkl'),
    ([*TRAIN, '--work-dir', '@/file/x'], 'cannot write to the folder .*file'),
    ([*PREDICT, '--out', '@/file/x'], 'cannot write to the folder'),
    ([*EXPORT, '@/file/x.onnx'], 'cannot write to the folder .*file'),
    ([*EXPORT, '@/x.txt'], 'must end in .onnx, .pt2 or .xml'),
    (['compare', '@', '@', '--out', '@/file/x'], 'cannot write to the folder .*file/x'),
    (['publish', '@/model.pth', '@/images'], 'images: name a file that ends in .pth or .safetensors'),
    (['check', '@/data', '--out', '@/file/x'], 'cannot write to the folder'),
    # Configs.
    (['train', '@/number.py', '--data', '@/data'], 'number.py has no model'),
    (
        [*PREDICT, '--cfg-options', 'model.nope=1'],
        "RetinaNet has no argument 'nope' .*_delete_=True.*; it has backbone",
    ),
    (['train', '@/empty.py', '--data', '@/data'], 'empty.py has no model'),
    (['predict', '@/empty.py', *PREDICT[2:]], 'empty.py has no model'),
    (['export', '@/empty.py', '@/model.pth', '@/x.onnx'], 'empty.py has no model'),
    # Files and devices that do not exist.
    (
        ['predict', TIMM, *PREDICT[2:], '--cfg-options', 'model.backbone.model_name=vit_small_patch16_dinov'],
        'did you mean one of vit_small_patch16_dinov3, ',
    ),
    (['predict', TIMM, *PREDICT[2:]], 'model.pth: .*Set model_name to the model that they belong to'),
    ([*PREDICT, '--device', 'cuda:99'], 'device cuda:99 is not available: '),
    (['predict', CONFIG, '@/model.pth', '@/none.jpg'], 'none.jpg not found'),
    ([*TRAIN, '--data', 'no_folder'], 'data no_folder not found; it must be a folder, or the data.yaml'),
    ([*TRAIN, '--resume', 'no.pth'], '--resume: checkpoint no.pth not found'),
    ([*TRAIN, '--log', 'tensorbord'], 'did you mean tensorboard'),
    ([*TRAIN, '--model', 'pvt-t'], 'leave them out'),
    (['train', '--data', '@/data', '--model', 'pvt-tt'], 'did you mean pvt-t'),
    (['compare', 'a', 'b'], 'a has no report.json; expected a work directory'),
    (['train', 'x', '--epoch', '1'], r'unrecognized arguments: --epoch 1 \(did you mean --epochs\?\)'),
    (['train', '--dta', 'x'], r'unrecognized arguments: --dta \(did you mean --data\?\); `tokennorm train --help`'),
    ([*PREDICT, '--thresold', 'best'], r'--thresold best \(did you mean --thresholds\?\)'),
    (['train', '--norm', 'dnt'], r'invalid choice: .dnt. \(.*\) \(did you mean dtn\?\)'),
    (['trian'], "no subcommand 'trian' .did you mean train"),
    # Words of other programs.
    (['val'], "no subcommand 'val' .did you mean test"),
    (
        ['train', 'model=yolov8n.pt', 'data=@/data'],
        'n.pt: options begin with --, and --model is one of pvt-t, ',
    ),
    (['train', 'model=mini', 'data=@/data'], 'model=mini: options begin with --: --model mini'),
    (['train', 'data=@/data', 'epochs=3'], 'data=.*/data: options begin with --: --data .*/data'),
    (['train', '--imgsz', '96'], r'--imgsz \(did you mean --image-size\?\)'),
    ([*PREDICT, '--conf', '0.5'], r'--conf 0.5 \(did you mean --score-thr\?\)'),
    ([*PREDICT, 'conf=0.5'], 'conf=0.5: options begin with --: --score-thr 0.5'),
]


@pytest.mark.parametrize(('words', 'message'), CASES, ids=[' '.join(words)[:60] for words, _ in CASES])
def test_bad_arguments_end_in_one_line(words, message, folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    text, status = ended(capsys, words, folder)
    assert status in (1, 2)
    assert re.search(message, text), text
    assert text.startswith('error: ')
    assert len(text.strip().splitlines()) == 1, text


def test_predict_keeps_the_other_images_of_a_folder(folder, tmp_path, capsys):
    """An image of 3000 x 2 pixels cannot be resized to the detector's scale."""
    out = str(tmp_path / 'out')
    for more, width in (([], 3000), (['--batch-size', '2'], 3000), (['--tiles', '2000'], 2000)):
        text, status = ended(capsys, [*PREDICT, '--out', out, *more], folder)
        assert (text, status) == (
            f'error: 1 of 2 files could not be read: thin.png (an image of {width} x 2 pixels is too narrow to resize)',
            1,
        )
        (image,) = json.loads((tmp_path / 'out' / 'detections.json').read_text())['images']
        assert image['file_name'] == 'a.png'
        assert (tmp_path / 'out' / 'vis' / 'a.png').is_file()


def test_train_refuses_an_empty_path():
    with pytest.raises(UserError, match='data  not found'):
        tokennorm.train(CONFIG, data='')


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        (dict(epoch=1), r'train has no argument epoch \(did you mean epochs\?\)'),
        (dict(epochs='1'), "epochs '1' must be an integer"),
        (dict(batch_size=True), 'batch_size True must be an integer of at least 1'),
        (dict(lr='0.1'), "lr '0.1' must be above 0"),
        (dict(device=0), 'device 0: expected cpu, cuda or cuda:N'),
        (dict(cfg_options=['a=1']), r"cfg_options=\['a=1'\] must be a dict"),
    ],
    ids=str,
)
def test_arguments_of_python_are_checked(options, message):
    with pytest.raises(UserError, match=f'^{message}'):
        tokennorm.train(CONFIG, **options)
