"""Logged scalars."""

import json


def write_scalars(folder, start, entries):
    path = folder / start / 'vis_data' / 'scalars.json'
    path.parent.mkdir(parents=True)
    path.write_text('\n'.join(json.dumps(entry) for entry in entries) + '\n')
    return path
