"""Draws docs/_static/learning.svg: AP against minutes, for 25 to 150 training images.

The values are those of `projects/experiments/cpu_default/run.py curve` and `curve_256`.
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[2]
TITLES = {
    'curve': 'raccoons: one large animal in most photographs',
    'curve_256': 'nuclei: many small objects in each image',
}


def main() -> None:
    results = json.loads((ROOT / 'projects/experiments/cpu_default/results.json').read_text('utf-8'))
    plt.rcParams.update({'svg.fonttype': 'none', 'svg.hashsalt': 'learning', 'font.size': 10})
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout='constrained')
    for axes, (step, title) in zip(panels, TITLES.items(), strict=True):
        runs = {int(run['setting'].split()[0]): run for run in results if run['step'] == step}
        for images, run in sorted(runs.items()):
            epochs = [int(epoch) for epoch in run['curve']]
            minutes = [run['cpu_seconds'] / 60 * epoch / epochs[-1] for epoch in epochs]
            axes.plot(minutes, [100 * ap for ap in run['curve'].values()], label=f'{images} images')
        axes.set(title=title, xlabel='minutes of one CPU thread', xlim=(0, None), ylim=(0, 65))
        axes.grid(color='#e2e8f1')
        axes.spines[['top', 'right']].set_visible(False)
        axes.legend(loc='lower right', reverse=True)
    panels[0].set_ylabel('AP on val')
    figure.savefig(ROOT / 'docs/_static/learning.svg', metadata={'Date': None})


if __name__ == '__main__':
    main()
