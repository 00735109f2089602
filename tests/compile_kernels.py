"""Compiles the Triton kernels of DTN for GPUs from Ampere to Blackwell, which needs none, and prints what it takes.

    python -m tests.compile_kernels        # with TRITON_INTERPRET unset

One line per architecture, case and launch: registers per thread, bytes of spilled registers per thread, bytes of shared
memory per block. It is compiled as `dtn_triton` launches it, with tensors on the CPU that no kernel reads.
"""

import re
import subprocess
import tempfile
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from experiments.gpu_kernels.dtn_triton import triton_dtn

ARCHITECTURES = (80, 86, 89, 90, 120)
# B, H, W, C, heads, pool, dtype, padded
CASES = [
    (2, 200, 334, 64, 1, 1, torch.bfloat16, False),  # the stride-4 stage of 800 x 1333
    (2, 100, 167, 128, 2, 1, torch.float32, True),
    (2, 14, 14, 432, 9, 1, torch.bfloat16, False),  # 48 channels per head, one block of positions
    (1, 1, 70, 4, 4, 2, torch.float32, False),  # one channel a head
    (1, 30, 5, 1000, 1, 1, torch.float32, True),  # a head in chunks
]


class Target:
    """As much of Triton's driver as compiling asks for."""

    def __init__(self, architecture):
        self.architecture = architecture

    def get_current_target(self):
        return GPUTarget('cuda', self.architecture, 32)

    def get_current_device(self):
        return self.architecture  # Triton compiles once per device

    def get_current_stream(self, device):
        return 0


def resources(cubin: bytes) -> tuple[int, int]:
    """Registers and stack bytes of a thread."""
    tool = Path(triton.__file__).parent / 'backends' / 'nvidia' / 'bin' / 'cuobjdump'
    with tempfile.NamedTemporaryFile(suffix='.cubin') as file:
        file.write(cubin)
        file.flush()
        command = [str(tool), '--dump-resource-usage', file.name]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    registers, stack = re.search(r'REG:(\d+) STACK:(\d+)', report).groups()
    return int(registers), int(stack)


def main() -> None:
    launch = JITFunction.run
    compiled = []

    def compile_only(kernel, *args, grid, warmup, **kwargs):
        compiled.append((kernel.fn.__name__, launch(kernel, *args, grid=grid, warmup=True, **kwargs)))

    JITFunction.run = compile_only
    for architecture in ARCHITECTURES:
        driver.set_active(Target(architecture))
        for case in CASES:
            batch, height, width, channels, heads, pool, dtype, padded = case
            x = torch.zeros(batch, height, width, channels, dtype=dtype, requires_grad=True)
            parameters = [torch.zeros(*shape) for shape in ((channels,), (channels,), (heads,), (heads,), (heads, 3))]
            valid = torch.ones(batch, 2, dtype=torch.int32) if padded else None
            compiled.clear()
            triton_dtn(x, *parameters, pool=pool, valid=valid).sum().backward()
            for name, kernel in compiled:
                registers, stack = resources(kernel.asm['cubin'])
                shape = 'x'.join(map(str, case[:4]))
                print(f'sm_{architecture} {shape} {heads} {pool} {name}: {registers} {stack} {kernel.metadata.shared}')


if __name__ == '__main__':
    main()
