"""The launchers hand on what they are given, to torchrun and to srun."""

import os
import subprocess
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / 'tools'


def launch(name, *args, path='', **env):
    """The command that a launcher would run, word by word."""
    env = {'PATH': f'{path}{os.pathsep}{os.environ["PATH"]}', 'PYTHON': 'echo'} | env
    return subprocess.run([TOOLS / name, *args], capture_output=True, text=True, env=env, timeout=30)


def test_dist_train():
    words = launch('dist_train.sh', 'CONFIG', '4', '--resume', '--cfg-options', 'a=b c').stdout.split()
    assert words[:2] == ['-m', 'torch.distributed.run']
    assert {'--standalone', '--nproc_per_node=4'} < set(words)
    assert not any('port' in word or 'rank' in word for word in words)
    script = words.index(f'{TOOLS}/train.py')
    assert words[script + 1 :] == ['CONFIG', '--launcher', 'pytorch', '--resume', '--cfg-options', 'a=b', 'c']


def test_several_machines():
    nodes = dict(NNODES='2', NODE_RANK='1', MASTER_ADDR='10.0.0.1')
    words = launch('dist_test.sh', 'CONFIG', 'CHECKPOINT', '8', **nodes).stdout.split()
    expected = {'--nnodes=2', '--node_rank=1', '--master_addr=10.0.0.1', '--master_port=29500', '--nproc_per_node=8'}
    assert expected < set(words)
    script = words.index(f'{TOOLS}/test.py')
    assert words[script + 1 :] == ['CONFIG', 'CHECKPOINT', '--launcher', 'pytorch']


def test_restarts_resume():
    words = launch('dist_train.sh', 'CONFIG', '4', '--work-dir', 'WORK', MAX_RESTARTS='3').stdout.split()
    assert {'--standalone', '--max_restarts=3'} < set(words)
    script = words.index(f'{TOOLS}/train.py')
    assert words[script + 1 :] == ['CONFIG', '--launcher', 'pytorch', '--resume', '--work-dir', 'WORK']
    nodes = dict(NNODES='2', NODE_RANK='1', MASTER_ADDR='10.0.0.1', MAX_RESTARTS='1')
    words = launch('dist_train.sh', 'CONFIG', '8', **nodes).stdout.split()
    assert {'--nnodes=2', '--rdzv_backend=c10d', '--rdzv_endpoint=10.0.0.1:29500', '--max_restarts=1'} < set(words)
    assert not any(word.startswith(('--node_rank', '--master')) for word in words)


@pytest.fixture
def slurm(tmp_path):
    """A folder with an `srun` that prints its own arguments and runs the command as the second of two machines."""
    srun = """#!/bin/bash
        while [ "$1" != bash ]; do echo "$1"; shift; done
        SLURM_NNODES=2 SLURM_NODEID=1 SLURM_JOB_ID=41234 SLURM_JOB_NODELIST='gpu[7-8]' exec "$@"
    """
    scontrol = '#!/bin/bash\n[ "$*" = "show hostnames gpu[7-8]" ] && printf "gpu7\\ngpu8\\n"\n'
    for name, content in (('srun', srun), ('scontrol', scontrol)):
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o755)
    return tmp_path


@pytest.mark.parametrize('name', ['train', 'test'])
def test_slurm(slurm, name):
    given = [name, 'PARTITION', 'JOB', 'CONFIG', 'FIFTH', '--cfg-options', 'a=b']
    environment = dict(GPUS='8', GPUS_PER_NODE='4', SRUN_ARGS='--time=1 --qos=high')
    words = launch('slurm.sh', *given, path=slurm, **environment).stdout.split()
    assert {'--partition=PARTITION', '--job-name=JOB', '--gres=gpu:4', '--ntasks=2', '--ntasks-per-node=1'} < set(words)
    assert {'--nodes=2', '--cpus-per-task=20', '--kill-on-bad-exit=1', '--time=1', '--qos=high'} < set(words)
    torchrun = words[words.index('torch.distributed.run') :]
    expected = {'--nnodes=2', '--node_rank=1', '--master_addr=gpu7', '--master_port=21234', '--nproc_per_node=4'}
    assert expected < set(torchrun)
    fifth, after = (['FIFTH'], []) if name == 'test' else ([], ['--work-dir', 'FIFTH'])
    assert torchrun[torchrun.index(f'{TOOLS}/{name}.py') + 1 :] == [
        *('CONFIG', *fifth, '--launcher', 'pytorch', *after, '--cfg-options', 'a=b')
    ]
