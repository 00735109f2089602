"""Time of each operation in a forward and backward pass of DTN on a CPU.

python benchmarks/dtn_profile.py --shape 8 14 14 432 --heads 9
python benchmarks/dtn_profile.py --shape 8 56 56 64 --heads 1 --pool 4
"""

import argparse

import torch
from torch.profiler import ProfilerActivity, profile

from tokennorm.norms import DTN


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--shape', type=int, nargs=4, default=(8, 14, 14, 432), metavar=('B', 'H', 'W', 'C'))
    parser.add_argument('--heads', type=int, default=9)
    parser.add_argument('--pool', type=int, default=1)
    parser.add_argument('--threads', type=int, default=1)
    parser.add_argument('--rounds', type=int, default=50)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    norm = DTN(args.shape[-1], args.heads, pool=args.pool)
    x = torch.randn(args.shape, requires_grad=True)
    grad = torch.randn(args.shape)

    def step() -> None:
        norm(x).backward(grad)

    for _ in range(10):
        step()
    with profile(activities=[ProfilerActivity.CPU]) as record:
        for _ in range(args.rounds):
            step()
    print(record.key_averages().table(sort_by='self_cpu_time_total', row_limit=15, max_name_column_width=40))


if __name__ == '__main__':
    main()
