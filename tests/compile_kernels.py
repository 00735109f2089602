"""Compiles the Triton kernels of DTN for an H100 or H200 (sm_90), which needs no GPU, and prints what they take.

    python -m tests.compile_kernels        # with TRITON_INTERPRET unset

One line a kernel and case: registers a thread, bytes of spilled registers a thread, bytes of shared memory a block.
The kernels are compiled as `dtn_triton` launches them, with tensors on the CPU that no kernel reads.
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

from tokennorm.ops.dtn_triton import dtn_triton

# B, H, W, C, heads, pool, dtype, padded, only_var
CASES = [
    (2, 200, 334, 64, 1, 1, torch.bfloat16, False, False),  # the stride-4 stage of 800 x 1333
    (2, 100, 167, 128, 2, 1, torch.float32, False, False),
    (2, 56, 56, 64, 1, 4, torch.float16, True, True),
    (2, 14, 14, 432, 9, 1, torch.bfloat16, False, False),  # 48 channels a head
    (2, 25, 42, 1024, 16, 1, torch.bfloat16, True, False),
    (1, 1, 7, 4, 4, 1, torch.float32, False, False),  # one channel a head
    (1, 3, 5, 1000, 1, 2, torch.float32, True, False),
]


class Hopper:
    """As much of Triton's driver as compiling asks for."""

    def get_current_target(self):
        return GPUTarget('cuda', 90, 32)

    def get_current_device(self):
        return 0

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
    driver.set_active(Hopper())
    launch = JITFunction.run
    compiled = {}

    def compile_only(kernel, *args, grid, warmup, **kwargs):
        name = kernel.__name__ + '_back' * kwargs.get('BACKWARD', False)
        compiled[name] = launch(kernel, *args, grid=grid, warmup=True, **kwargs)

    JITFunction.run = compile_only
    for case in CASES:
        batch, height, width, channels, heads, pool, dtype, padded, only_var = case
        x = torch.zeros(batch, height, width, channels, dtype=dtype, requires_grad=True)
        parameters = [torch.zeros(*shape) for shape in ((channels,), (channels,), (heads,), (heads,), (heads, 3))]
        if only_var:
            parameters[2] = None
        valid = torch.ones(batch, 2, dtype=torch.int32) if padded else None
        compiled.clear()
        dtn_triton(x, *parameters, pool=pool, valid=valid).sum().backward()
        for name, kernel in compiled.items():
            registers, stack = resources(kernel.asm['cubin'])
            shape = 'x'.join(map(str, case[:4]))
            print(f'{shape} {heads} {pool} {dtype} {name} {registers} {stack} {kernel.metadata.shared}')


if __name__ == '__main__':
    main()
