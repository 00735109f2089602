"""Two processes over gloo, started by the launcher: they train as one process with the total batch, to the same AP."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from mmengine.config import Config
from mmengine.model import BaseModel, MMDistributedDataParallel

from experiments.shapes import make_shapes_dataset
from tests.helpers.compare import assert_near
from tests.helpers.processes import in_processes
from tokennorm.engine.distributed import end_together, start_cpu_processes

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / 'configs' / 'demo' / 'retinanet_pvt-mini-dtn-dpn_fpn_shapes.py'

# ATSS divides its losses by counts over all processes. RetinaNet and Mask R-CNN of mmdet divide by those of each
# process, so that two processes are not quite one with twice the batch.
CONFIG = """
_base_ = '{demo}'
custom_imports = dict(imports=['tests.record_steps'], allow_failed_imports=False)
loader = dict(num_workers=0, persistent_workers=False)
train_dataloader = dict(**loader, batch_size={batch_size}, dataset=dict(data_root='{data}'))
val_dataloader = dict(**loader, batch_size=1, dataset=dict(data_root='{data}'))
test_dataloader = val_dataloader
val_evaluator = dict(ann_file='{data}/annotations/val.json')
test_evaluator = val_evaluator
train_cfg = dict(max_epochs=1, val_interval=1)
param_scheduler = None
optim_wrapper = dict(optimizer=dict(_delete_=True, type='SGD', lr=0.02, weight_decay=1e-4))
custom_hooks = [dict(type='mmengine.RecordSteps')]
model = dict(
    type='ATSS',
    bbox_head=dict(
        _delete_=True,
        type='ATSSHead',
        num_classes=4,
        in_channels=64,
        feat_channels=64,
        stacked_convs=1,
        anchor_generator=dict(
            type='AnchorGenerator', ratios=[1.0], octave_base_scale=3, scales_per_octave=1, strides=[8, 16, 32]
        ),
        bbox_coder=dict(type='DeltaXYWHBBoxCoder', target_stds=[0.1, 0.1, 0.2, 0.2]),
        loss_bbox=dict(type='GIoULoss', loss_weight=2.0),
    ),
    train_cfg=dict(_delete_=True, assigner=dict(type='ATSSAssigner', topk=9), allowed_border=-1, pos_weight=-1),
    test_cfg=dict(score_thr=0.0),
)
"""


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    return make_shapes_dataset(tmp_path_factory.mktemp('data') / 'shapes', num_train=8, num_val=3, image_size=64)


def write_config(folder, data, batch_size):
    path = folder / f'batch{batch_size}.py'
    path.write_text(CONFIG.format(demo=DEMO, data=data, batch_size=batch_size))
    return path


def launch(script, *args, **env):
    paths = os.pathsep.join([str(ROOT), str(ROOT / 'projects')])
    env = os.environ | dict(PYTHON=sys.executable, PYTHONPATH=paths, OMP_NUM_THREADS='1') | env
    return subprocess.Popen(
        [ROOT / 'tools' / script, *map(str, args)], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(process):
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out[-4000:]
    return out


def train_alone(config, work_dir):
    runpy.run_path(str(ROOT / 'tools' / 'train.py'))['main']([str(config), '--work-dir', str(work_dir)])


def average_precision(work_dir):
    lines = [json.loads(line) for path in work_dir.glob('*/vis_data/scalars.json') for line in path.open()]
    (entry,) = [entry for entry in lines if 'coco/bbox_mAP' in entry]
    return {key: value for key, value in entry.items() if key.startswith('coco/')}


def check_against_one_process(one, two):
    """The records, the weights and the AP of two processes beside those of one with the same total batch."""
    alone = json.loads((one / 'rank0.json').read_text())
    ranks = [json.loads((two / f'rank{rank}.json').read_text()) for rank in (0, 1)]
    assert ranks[0]['start'] == ranks[1]['start'] == alone['start']
    assert len(alone['steps']) == 2
    for whole, *parts in zip(alone['steps'], *(rank['steps'] for rank in ranks), strict=True):
        assert not set(parts[0]['images']) & set(parts[1]['images'])
        for key in ('images', 'pixels'):  # the same images with the same augmentation
            assert sorted(parts[0][key] + parts[1][key]) == sorted(whole[key])
        assert parts[0]['loss'] != parts[1]['loss']
        assert sum(part['loss'] for part in parts) / 2 == pytest.approx(whole['loss'], rel=1e-5)
    weights = [torch.load(folder / 'epoch_1.pth', weights_only=False)['state_dict'] for folder in (one, two)]
    for name, expected in weights[0].items():
        assert_near(name, weights[1][name], expected, 'backward')
    assert average_precision(one) == average_precision(two)


def check_one_writer(work_dir):
    (logs,) = [path for path in work_dir.iterdir() if path.is_dir()]
    assert [path.name for path in logs.glob('*.log')] == [f'{logs.name}.log']
    assert [path.name for path in work_dir.glob('epoch_*')] == ['epoch_1.pth']


def threads_of_the_group():
    return [t for t in os.listdir('/proc/self/task') if 'gloo' in Path(f'/proc/self/task/{t}/comm').read_text('utf-8')]


class OneLayer(BaseModel):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.fc(x)


def begin_and_end(rank, folder):
    """In a process of its own."""
    os.environ.update(RANK='0', WORLD_SIZE='1', MASTER_ADDR='127.0.0.1', MASTER_PORT='29613', CUDA_VISIBLE_DEVICES='')
    start_cpu_processes(Config(dict(launcher='pytorch')))
    runner = SimpleNamespace(model=MMDistributedDataParallel(OneLayer()))
    runner.model(torch.ones(1, 2)).sum().backward()
    assert threads_of_the_group()
    end_together(runner)
    assert not threads_of_the_group()
    assert isinstance(runner.model, OneLayer)


@pytest.mark.skipif(sys.platform != 'linux', reason='reads /proc')
def test_no_thread_of_the_group_is_left_at_the_end(tmp_path):
    """One that is left may abort the end of Python."""
    in_processes(begin_and_end, tmp_path, number=1)


@pytest.mark.slow
def test_two_processes_train_as_one_with_the_total_batch(data, tmp_path):
    one, two = tmp_path / 'one', tmp_path / 'two'
    process = launch('dist_train.sh', write_config(tmp_path, data, 2), 2, '--work-dir', two)
    train_alone(write_config(tmp_path, data, 4), one)
    finish(process)
    check_against_one_process(one, two)
    check_one_writer(two)


@pytest.mark.slow
def test_two_groups_of_torchrun_train_as_one_and_evaluate_alike(data, tmp_path):
    """As on two machines: each group has a process, and they meet at the address of the first."""
    one, two = tmp_path / 'one', tmp_path / 'two'
    nodes = [dict(NNODES='2', NODE_RANK=str(rank), MASTER_ADDR='127.0.0.1', PORT='29611') for rank in (0, 1)]
    config = write_config(tmp_path, data, 2)
    processes = [launch('dist_train.sh', config, 1, '--work-dir', two, **node) for node in nodes]
    train_alone(write_config(tmp_path, data, 4), one)
    for process in processes:
        finish(process)
    check_against_one_process(one, two)
    out = finish(launch('dist_test.sh', config, two / 'epoch_1.pth', 2, '--work-dir', tmp_path / 'test'))
    assert f'coco/bbox_mAP: {average_precision(one)["coco/bbox_mAP"]:.4f}' in out
