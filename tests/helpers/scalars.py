"""Logged scalars."""

import json


def write_scalars(folder, start, entries):
    path = folder / start / 'vis_data' / 'scalars.json'
    path.parent.mkdir(parents=True)
    path.write_text('\n'.join(json.dumps(entry) for entry in entries) + '\n')
    return path


def logged(work_dir):
    """The entries that all runs in a work directory have logged."""
    paths = sorted(work_dir.glob('*/vis_data/scalars.json'))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]
