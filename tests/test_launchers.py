"""The launchers hand on what they are given, to torchrun and to srun."""

import os
import subprocess
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[1] / 'tools'


def launch(name, *args, path='', **env):
    """The command that a launcher would run, word by word."""
    env = {'PATH': f'{path}{os.pathsep}{os.environ["PATH"]}', 'PYTHON': 'echo'} | env
    return subprocess.run([TOOLS / name, *args], capture_output=True, text=True, env=env, timeout=30)


def test_dist_train():
    words = launch('dist_train.sh', 'CONFIG', '4', '--resume', '--cfg-options', 'a=b c').stdout.split()
    assert words[:2] == ['-m', 'torch.distributed.run']
    assert {'--nnodes=1', '--node_rank=0', '--nproc_per_node=4'} < set(words)
    assert {'--master_addr=127.0.0.1', '--master_port=29500'} < set(words)
    script = words.index(f'{TOOLS}/train.py')
    assert words[script + 1 :] == ['CONFIG', '--launcher', 'pytorch', '--resume', '--cfg-options', 'a=b', 'c']


def test_several_machines():
    nodes = dict(NNODES='2', NODE_RANK='1', MASTER_ADDR='10.0.0.1', PORT='1234')
    words = launch('dist_test.sh', 'CONFIG', 'CHECKPOINT', '8', **nodes).stdout.split()
    assert {'--nnodes=2', '--node_rank=1', '--master_addr=10.0.0.1', '--master_port=1234'} < set(words)
    script = words.index(f'{TOOLS}/test.py')
    assert words[script + 1 :] == ['CONFIG', 'CHECKPOINT', '--launcher', 'pytorch']


@pytest.mark.parametrize('name', ['train', 'test'])
def test_slurm(tmp_path, name):
    (tmp_path / 'srun').write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / 'srun').chmod(0o755)
    given = ['PARTITION', 'JOB', 'CONFIG', 'FOURTH', '--cfg-options', 'a=b']
    environment = dict(GPUS='4', SRUN_ARGS='--time=1 --qos=high', PYTHON='python')
    words = launch(f'slurm_{name}.sh', *given, path=tmp_path, **environment).stdout.split()
    assert {'--partition=PARTITION', '--job-name=JOB', '--gres=gpu:4', '--ntasks=4', '--ntasks-per-node=4'} < set(words)
    assert {'--time=1', '--qos=high', '--kill-on-bad-exit=1', '--cpus-per-task=5'} < set(words)
    fourth = ['--work-dir', 'FOURTH'] if name == 'train' else ['FOURTH']
    assert words[words.index('python') :] == [
        *('python', '-u', f'{TOOLS}/{name}.py', 'CONFIG', *fourth, '--launcher', 'slurm', '--cfg-options', 'a=b')
    ]


@pytest.mark.parametrize('name', ['dist_train', 'dist_test', 'slurm_train', 'slurm_test'])
def test_too_few_arguments_print_the_usage(name):
    done = launch(f'{name}.sh', 'CONFIG')
    assert done.returncode == 2
    assert f'tools/{name}.sh ' in done.stderr
