"""DINO (Caron et al., "Emerging Properties in Self-Supervised Vision Transformers", 2021), with loss, head and schedule
of lightly."""

from collections.abc import Mapping
from typing import Any

import torch
from mmengine.logging import MessageHub
from mmengine.model import BaseModel
from torch import Tensor, nn

from tokennorm.layers.building import resolve_type
from tokennorm.registry import MODELS


@MODELS.register_module()
class DINO(BaseModel):
    """A student learns to predict a teacher's output for other crops of the same image.

    The teacher is the moving average of the student. Its backbone is `backbone`, so a checkpoint of the run is a
    checkpoint for `init_cfg` of a detector or classifier.

    Args:
        backbone: Config of a TokenNorm backbone that returns one vector per image.
        out_dims: Outputs of the heads.
        hidden_dims: Width of the heads' MLPs.
        bottleneck_dims: Width before the last layer of the heads.
        norm_last_layer: Keep the norm of the last layer's weights at 1.
        freeze_last_layer: Epochs in which the student's last layer is not trained.
        momentum: Of the teacher, at the beginning; it grows to 1 by a cosine.
        teacher_temp: Temperature of the teacher.
        warmup_teacher_temp: Temperature in the first epoch.
        warmup_teacher_temp_epochs: Epochs in which the temperature grows from the one to the other.
        data_preprocessor: As in every model of mmengine.

    Raises:
        ImportError: if lightly is not installed.
    """

    def __init__(
        self,
        backbone: Mapping[str, Any],
        out_dims: int = 65536,
        hidden_dims: int = 2048,
        bottleneck_dims: int = 256,
        norm_last_layer: bool = True,
        freeze_last_layer: int = 1,
        momentum: float = 0.996,
        teacher_temp: float = 0.04,
        warmup_teacher_temp: float = 0.04,
        warmup_teacher_temp_epochs: int = 0,
        data_preprocessor: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(data_preprocessor)
        try:
            from lightly.loss import DINOLoss
            from lightly.models.modules import DINOProjectionHead
        except ImportError as error:
            raise ImportError(f'{error}: DINO needs lightly; run `pip install ".[dino]"`') from error
        cls, kwargs = resolve_type(backbone, 'backbone')
        head = dict(
            hidden_dim=hidden_dims,
            bottleneck_dim=bottleneck_dims,
            output_dim=out_dims,
            norm_last_layer=norm_last_layer,
        )
        self.student_backbone = cls(**kwargs)
        self.student_head = DINOProjectionHead(self.student_backbone.feature_info[-1]['num_chs'], **head)
        self.backbone = cls(**{**kwargs, 'drop_path_rate': 0.0})
        self.head = DINOProjectionHead(self.backbone.feature_info[-1]['num_chs'], **head)
        self.criterion = DINOLoss(out_dims, warmup_teacher_temp, teacher_temp, warmup_teacher_temp_epochs)
        self.momentum = momentum
        self.freeze_last_layer = freeze_last_layer
        self.student_head.last_layer.weight_v.register_hook(self._unless_frozen)
        self._start_teacher()

    def _start_teacher(self) -> None:
        for teacher, student in self._pairs():
            teacher.load_state_dict(student.state_dict())
            teacher.requires_grad_(False)

    def _pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        return [(self.backbone, self.student_backbone), (self.head, self.student_head)]

    def init_weights(self) -> None:
        """Loads the `init_cfg` of the backbone, if any. mmengine calls it before training."""
        self.student_backbone.init_weights()
        self._start_teacher()

    def forward(self, inputs: Any, labels: Tensor | None = None, mode: str = 'tensor') -> Any:
        """Views of images, the first two of them global, to the loss; or images (B, C, H, W) to the teacher's vectors.

        Args:
            inputs: For `mode='loss'` a list of views, each (B, C, H, W).
            labels: Unused.
            mode: 'loss' or 'tensor'.
        """
        if mode != 'loss':
            return self.backbone(inputs)[-1]
        epoch = MessageHub.get_current_instance().get_info('epoch', 0)
        self._update_teacher()
        with torch.no_grad():
            taught = self.head(self.backbone(torch.cat(inputs[:2]))[-1]).chunk(2)
        learned = []
        for views in by_size(inputs):
            learned += self.student_head(self.student_backbone(torch.cat(views))[-1]).chunk(len(views))
        return dict(loss=self.criterion(list(taught), learned, epoch=epoch))

    @torch.no_grad()
    def _update_teacher(self) -> None:
        """Moves the teacher towards the student as it is after the last step."""
        from lightly.models.utils import update_momentum
        from lightly.utils.scheduler import cosine_schedule

        hub = MessageHub.get_current_instance()
        steps = hub.get_info('max_iters', 1)
        momentum = cosine_schedule(min(hub.get_info('iter', 0), steps), steps, self.momentum, 1.0)
        for teacher, student in self._pairs():
            update_momentum(student, teacher, momentum)

    def _unless_frozen(self, grad: Tensor) -> Tensor:
        """The gradient, or zeros in the first epochs."""
        epoch = MessageHub.get_current_instance().get_info('epoch', 0)
        return grad if epoch >= self.freeze_last_layer else torch.zeros_like(grad)


def by_size(views: list[Tensor]) -> list[list[Tensor]]:
    """Groups views of one size, in their order: each group is one forward pass on one grid of tokens."""
    groups: dict[tuple[int, ...], list[Tensor]] = {}
    for view in views:
        groups.setdefault(tuple(view.shape[-2:]), []).append(view)
    return list(groups.values())
