"""The manifests in tools/clusters are valid YAML and start torchrun as intended."""

import os
import subprocess
from pathlib import Path

import yaml
from mmengine import Config

ROOT = Path(__file__).resolve().parents[2]
KUBERNETES, KUBEFLOW, SKYPILOT = (
    (ROOT / 'tools' / 'clusters' / f'{name}.yaml').read_text() for name in ('kubernetes', 'kubeflow', 'skypilot')
)
MAX_RESTARTS = {'--nnodes=4', '--nproc_per_node=8', '--max_restarts=3', '--rdzv_backend=c10d'}


def words_of(command, env):
    """The words that torchrun would get."""
    env = os.environ | {'PYTHON': 'echo'} | env
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout.split()


def check_config(words):
    """32 images on each of 32 GPUs are the batch of the config; both datasets are shards."""
    cfg = Config.fromfile(ROOT / words[words.index('tools/train.py') + 1])
    cfg.merge_from_dict(dict(word.split('=') for word in words[words.index('--cfg-options') + 1 :]))
    assert 32 * int(cfg.train_dataloader.batch_size) == cfg.auto_scale_lr.base_batch_size
    for split in ('train', 'val'):
        dataset = cfg[f'{split}_dataloader'].dataset
        expected = ('tokennorm.ShardDataset', '/data/imagenet_shards', split)
        assert (dataset.type, dataset.data_root, dataset.split) == expected


def test_the_kubernetes_job():
    service, job = yaml.safe_load_all(KUBERNETES)
    spec = job['spec']
    pod = spec['template']['spec']
    (container,) = pod['containers']
    env = {entry['name']: entry['value'] for entry in container['env']}
    assert spec['completions'] == spec['parallelism'] == int(env['NNODES'])
    assert env['MASTER_ADDR'] == f'{job["metadata"]["name"]}-0.{service["metadata"]["name"]}'
    assert pod['subdomain'] == service['metadata']['name']
    words = words_of(container['command'], env)
    assert MAX_RESTARTS | {'--rdzv_endpoint=tokennorm-0.tokennorm:29500', '--resume'} < set(words)
    assert container['resources']['limits']['nvidia.com/gpu'] == 8
    check_config(words)


def test_the_kubeflow_train_job():
    trainer = yaml.safe_load(KUBEFLOW)['spec']['trainer']
    given = {'PET_NNODES': str(trainer['numNodes']), 'PET_NODE_RANK': '1', 'PET_MASTER_PORT': '29400'}
    given['PET_MASTER_ADDR'] = 'tokennorm-node-0-0.tokennorm'
    command = [word.replace('cd /tokennorm\n', '') for word in trainer['command']]
    words = words_of(command, given | {entry['name']: entry['value'] for entry in trainer['env']})
    assert MAX_RESTARTS | {'--rdzv_endpoint=tokennorm-node-0-0.tokennorm:29400', '--resume'} < set(words)
    check_config(words)


def test_the_skypilot_task():
    task = yaml.safe_load(SKYPILOT)
    nodes = {'SKYPILOT_NODE_IPS': '10.0.0.7\n10.0.0.8', 'SKYPILOT_NODE_RANK': '1', 'SKYPILOT_NUM_GPUS_PER_NODE': '8'}
    words = words_of(['bash', '-euc', task['run']], nodes | {'SKYPILOT_NUM_NODES': str(task['num_nodes'])})
    assert MAX_RESTARTS | {'--rdzv_endpoint=10.0.0.7:29500', '--resume'} < set(words)
    assert task['resources']['accelerators'].endswith(':8')
    check_config(words)
