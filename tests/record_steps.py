"""A hook for tests of several processes: what each of them starts from, sees and computes, one json a process."""

import json
from pathlib import Path

from mmengine.dist import get_rank
from mmengine.hooks import Hook
from mmengine.registry import HOOKS


@HOOKS.register_module()
class RecordSteps(Hook):
    """Writes `rank<N>.json` into the work directory."""

    def before_train(self, runner):
        model = getattr(runner.model, 'module', runner.model)
        self.record = dict(start=sum(p.double().abs().sum().item() for p in model.parameters()), steps=[])

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        images = [sample.img_id for sample in data_batch['data_samples']]
        pixels = [int(image.long().sum()) for image in data_batch['inputs']]
        self.record['steps'].append(dict(images=images, pixels=pixels, loss=outputs['loss'].item()))

    def after_train(self, runner):
        Path(runner.work_dir, f'rank{get_rank()}.json').write_text(json.dumps(self.record), encoding='utf-8')
