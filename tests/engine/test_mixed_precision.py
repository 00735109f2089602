"""`--amp`: features in half precision, heads and losses in float32."""

from copy import deepcopy

import pytest
import torch
from mmengine import Config, DefaultScope
from mmengine.optim import build_optim_wrapper

from tests.helpers.cases import slow
from tests.helpers.configs import build_model
from tests.helpers.samples import sample_with_two_objects
from tests.helpers.toy_training import amp_on_cpu  # noqa: F401 - a fixture
from tokennorm.config.paths import config as config_path
from tokennorm.plan.hardware import use_mixed_precision

HALF = dict(bf16=torch.bfloat16, fp16=torch.float16)


@pytest.mark.parametrize(
    ('name', 'kind'),
    [
        slow('retinanet_pvt-mini-dtn_fpn', 'bf16'),
        ('mask-rcnn_pvt-mini-dtn_fpn', 'fp16'),
        slow('retinanet_pvt-mini-dtn_fpn', 'fp16'),
        slow('mask-rcnn_pvt-mini-dtn_fpn', 'bf16'),
    ],
)
@pytest.mark.usefixtures('amp_on_cpu')
def test_heads_of_default_detectors_are_float32(name, kind):
    cfg = Config.fromfile(config_path(name))
    cfg.model.backbone.init_cfg = None
    model = build_model(cfg).train()
    sample = sample_with_two_objects()
    sample.gt_instances.labels.zero_()  # these configs have one class
    data = dict(inputs=[torch.randint(0, 256, (3, 96, 128))] * 2, data_samples=[sample] * 2)

    def losses(model, amp):
        own = deepcopy(cfg)
        own.optim_wrapper.optimizer.lr = 0.0
        if amp:
            use_mixed_precision(own, kind)
        with DefaultScope.overwrite_default_scope(own.default_scope):
            wrapper = build_optim_wrapper(model, own.optim_wrapper)
        torch.manual_seed(1)
        return {key: float(value) for key, value in model.train_step(data, wrapper).items() if 'loss' in key}

    expected = losses(deepcopy(model), amp=False)
    dtypes = {}  # of the input and the output

    def note(key, module):
        module.register_forward_hook(lambda _, inputs, output: dtypes.update({key: (inputs[0].dtype, output.dtype)}))

    note('mlp', next(module for module in model.backbone.modules() if isinstance(module, torch.nn.Linear)))
    note('neck', model.neck.lateral_convs[0].conv)
    note('head', (model.rpn_head.rpn_conv if hasattr(model, 'rpn_head') else model.bbox_head.retina_cls))
    found = losses(model, amp=True)
    assert (dtypes['mlp'][1], dtypes['neck'][1]) == (HALF[kind], HALF[kind])
    assert dtypes['head'] == (torch.float32, torch.float32)
    for step in (found, expected):
        step.pop('loss_bbox', None)  # of the few proposals that were drawn
    assert found == pytest.approx(expected, rel=0.03)
    assert all(p.grad.dtype == torch.float32 for p in model.parameters() if p.grad is not None)
    model.eval()
    with torch.no_grad():
        model.extract_feat(torch.zeros(1, 3, 64, 96))
    assert (dtypes['mlp'][1], dtypes['neck'][1]) == (torch.float32, torch.float32), 'training only'
