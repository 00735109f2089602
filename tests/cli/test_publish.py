"""`tokennorm publish`, and no tool runs code that a checkpoint carries."""

import json

import numpy as np
import pytest
import torch
from mmengine import Config
from mmengine.registry import MODELS
from mmengine.runner import checkpoint as loaders

from tests.helpers.checkpoints import Planted, assert_same
from tests.helpers.commands import tool
from tests.helpers.trained import CONFIG, ROOT, options
from tokennorm import Detector
from tokennorm.checkpoints import read_checkpoint


@pytest.fixture
def planted(demo_trained, tmp_path):
    """A work directory with a checkpoint into which someone has put code."""
    work_dir = tmp_path / 'planted'
    work_dir.mkdir()
    content = torch.load(demo_trained / 'epoch_1.pth', weights_only=False)
    content['meta']['planted'] = Planted(tmp_path)
    torch.save(content, work_dir / 'epoch_1.pth')
    (work_dir / 'last_checkpoint').write_text(str(work_dir / 'epoch_1.pth'))
    return work_dir


def start_from(checkpoint):
    return {'model.backbone.init_cfg.type': 'Pretrained', 'model.backbone.init_cfg.checkpoint': str(checkpoint)}


TOOLS = {
    'resume': lambda few, file: ('train', [CONFIG, '--work-dir', str(file.parent), '--resume', *few()]),
    'load_from': lambda few, file: ('train', [CONFIG, *few(load_from=str(file))]),
    'init_cfg': lambda few, file: ('train', [CONFIG, *few(**start_from(file))]),
    'test': lambda few, file: ('test', [CONFIG, str(file), *few()]),
    'predict': lambda few, file: ('predict', [CONFIG, str(file), str(ROOT / 'docs' / 'raccoons.jpg')]),
    'publish': lambda few, file: ('publish', [str(file), 'out.pth']),
}


@pytest.mark.parametrize('use', TOOLS)
def test_no_tool_runs_what_a_checkpoint_carries(use, demo_data, planted, tmp_path, monkeypatch):
    def few(**more):
        return ['--cfg-options', *options(demo_data, **more)]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr('sys.argv', ['tool'])
    for loader in ('_safe_torch_load', 'load_url'):  # as in the end mmengine's own do
        monkeypatch.setattr(loaders, loader, lambda file, *_, **__: torch.load(file, weights_only=False), raising=False)
    name, arguments = TOOLS[use](few, planted / 'epoch_1.pth')
    with pytest.raises(SystemExit, match=r'(?s)error: .*epoch_1.pth cannot be read as tensors only'):
        tool(name)(arguments)
    assert not (tmp_path / 'ran').exists()
    assert not list(tmp_path.glob('out*'))


def test_published_checkpoints_are_small_safe_and_equal(demo_data, demo_trained, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = demo_trained / 'epoch_1.pth'
    tool('publish')([str(source), 'weights/mini.pth'])
    (path,) = (tmp_path / 'weights').glob('*.pth')
    assert sorted(one.name for one in path.parent.iterdir()) == ['README.md', path.name]
    printed = capsys.readouterr().out
    assert f'from {source} (epoch 1, config retinanet_pvt-mini-dtn-dpn_fpn_shapes)' in printed
    assert f'weights/{path.name}: ' in printed
    assert 'left out: message_hub, optimizer, param_schedulers' in printed
    assert path.name.startswith('mini-')
    latest = read_checkpoint(source)
    content = torch.load(path, weights_only=True)
    assert set(content) == {'state_dict', 'meta'}
    assert_same('state_dict', content['state_dict'], dict(latest['state_dict']))
    assert content['meta']['dataset_meta']['classes'] == ('disk', 'square', 'triangle', 'star')
    before, after = (Config.fromstring(one['meta']['cfg'], '.py') for one in (latest, content))
    assert (str(demo_data) in before.pretty_text, str(demo_data) in after.pretty_text) == (True, False)
    assert after.train_dataloader.dataset.data_root == demo_data.name
    assert after.model == before.model
    assert path.stat().st_size < 0.5 * source.stat().st_size
    with pytest.raises(SystemExit, match=rf'error: weights/{path.name} already exists'):
        tool('publish')([str(source), 'weights/mini.pth'])  # the same content has the same name
    assert [file.name for file in (tmp_path / 'weights').glob('*.pth')] == [path.name]

    arguments = ['--cfg-options', *options(demo_data)]
    tool('test')([CONFIG, str(path), '--work-dir', 'tested', *arguments])
    (metrics,) = tmp_path.glob('tested/*/*.json')
    assert 'coco/bbox_mAP' in json.loads(metrics.read_text())
    cfg = Config.fromfile(CONFIG).model.backbone
    backbone = MODELS.build(dict(cfg, init_cfg=dict(type='Pretrained', checkpoint=str(path))))
    backbone.init_weights()
    for key, value in backbone.state_dict().items():
        assert torch.equal(value, content['state_dict'][f'backbone.{key}']), key


def test_what_cannot_be_published_is_said(tmp_path):
    for name, value in (('inf', float('inf')), ('nan', float('nan'))):
        torch.save(dict(state_dict=dict(weight=torch.tensor([1.0, value]))), tmp_path / f'{name}.pth')
        with pytest.raises(
            SystemExit, match=rf'{name}.pth has values that are not finite, NaN or infinite, .*: weight'
        ):
            tool('publish')([str(tmp_path / f'{name}.pth'), str(tmp_path / 'out.pth')])
    weight = dict(weight=torch.ones(1))
    torch.save(dict(state_dict=weight, meta=dict(epoch=np.float64(1))), tmp_path / 'numpy.pth')
    with pytest.raises(SystemExit, match=r'the checkpoint would hold more than plain data: .*numpy'):
        tool('publish')([str(tmp_path / 'numpy.pth'), str(tmp_path / 'out.pth')])
    assert not list(tmp_path.glob('out*'))


def test_a_published_safetensors_file_gives_the_same_detections(demo_data, demo_trained, tmp_path, capsys):
    """Training cannot resume from it."""
    tool('publish')([str(demo_trained), str(tmp_path / 'mini.safetensors')])
    (path,) = tmp_path.glob('mini-*.safetensors')
    capsys.readouterr()
    content, latest = read_checkpoint(path), read_checkpoint(demo_trained)
    assert_same('state_dict', dict(sorted(content['state_dict'].items())), dict(sorted(latest['state_dict'].items())))
    models = [Config.fromstring(one['meta']['cfg'], '.py').model for one in (content, latest)]
    assert models[0] == models[1]
    assert content['meta']['dataset_meta']['classes'] == latest['meta']['dataset_meta']['classes']
    image = ROOT / 'docs' / 'raccoons.jpg'
    every_box = tmp_path / 'every_box.py'
    every_box.write_text(f'_base_ = {CONFIG!r}\nmodel = dict(test_cfg=dict(score_thr=0.0))')
    boxes = [Detector(every_box, checkpoint, 'cpu')(image, 0.0).boxes for checkpoint in (demo_trained, path)]
    assert len(boxes[0])
    np.testing.assert_array_equal(*boxes)
    with pytest.raises(SystemExit, match=r'safetensors has only weights.*--init '):
        tool('train')(
            [CONFIG, '--resume', str(path), '--work-dir', str(tmp_path / 'more'), '--cfg-options', *options(demo_data)]
        )
