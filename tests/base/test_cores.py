"""Limits of control groups, the threads that follow from them, and the cores that other programs keep busy."""

import os
import subprocess
import sys
import time

import pytest
import torch

from tokennorm.base import cores
from tokennorm.commands.importing import import_openmmlab


@pytest.fixture
def groups(tmp_path):
    """Writes the control groups of a process: its groups, the mounts (root, place, kind, options), and limits."""

    def written(own, mounts, files):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(f'{text}\n')
        lines = [f'25 1 0:{n} {root} {tmp_path}/{at} rw - {kind}' for n, (root, at, kind) in enumerate(mounts)]
        lines += ['22 1 0:21 / /proc rw - proc proc rw', '30 1 8:1 / / rw shared:1 - ext4  rw']
        (tmp_path / 'mountinfo').write_text('\n'.join(lines))
        (tmp_path / 'cgroup').write_text('\n'.join(own))
        return cores.container_cores(tmp_path)

    return written


V2 = ('/', 'fs', 'cgroup2 cgroup2 rw,nsdelegate')
V1 = 'cgroup cgroup rw,cpu,cpuacct'
SLICES = ['0::/user.slice/user-7.slice/a.scope']


@pytest.mark.parametrize(
    ('own', 'mounts', 'files', 'expected'),
    [
        (['0::/'], [V2], {'fs/cpu.max': '400000 100000'}, 4),
        (['0::/'], [V2], {'fs/cpu.max': '150000 100000'}, 1),
        (['0::/'], [V2], {'fs/cpu.max': '5000 100000'}, 1),
        (['0::/'], [V2], {'fs/cpu.max': 'max 100000'}, None),
        (['0::/'], [V2], {}, None),
        (SLICES, [V2], {'fs/user.slice/user-7.slice/cpu.max': '300000 100000'}, 3),
        (SLICES, [V2], {'fs/user.slice/cpu.max': '300000 100000',
                        'fs/user.slice/user-7.slice/a.scope/cpu.max': '700000 100000'}, 3),
        (SLICES, [V2], {'fs/user.slice/user-7.slice/a.scope/cpu.max': 'max 100000',
                        'fs/user.slice/cpu.max': '250000 50000'}, 5),
        (SLICES, [V2], {'fs/other.slice/cpu.max': '100000 100000'}, None),
        (['0::/docker/ab'], [('/docker/ab', *V2[1:])], {'fs/cpu.max': '200000 100000'}, 2),  # of the host's names
        (['0::/docker/abc'], [('/docker/ab', *V2[1:])], {'fs/cpu.max': '200000 100000'}, 2),
        (['0::/../ab'], [V2], {'fs/cpu.max': '200000 100000'}, 2),  # seen from another container
        (['4:cpu,cpuacct:/', '0::/'], [('/', 'cpu', V1)],
         {'cpu/cpu.cfs_quota_us': '600000', 'cpu/cpu.cfs_period_us': '100000'}, 6),
        (['4:cpu,cpuacct:/'], [('/', 'cpu', V1)],
         {'cpu/cpu.cfs_quota_us': '-1', 'cpu/cpu.cfs_period_us': '100000'}, None),
        (['4:cpuacct,cpu:/kube/pod/one'], [('/', 'cpu', 'cgroup cgroup rw,cpuacct,cpu')],
         {'cpu/kube/pod/one/cpu.cfs_quota_us': '-1', 'cpu/kube/pod/one/cpu.cfs_period_us': '100000',
          'cpu/kube/pod/cpu.cfs_quota_us': '200000', 'cpu/kube/pod/cpu.cfs_period_us': '100000'}, 2),
        (['4:cpu,cpuacct:/docker/ab'], [('/docker/ab', 'cpu', V1)],
         {'cpu/cpu.cfs_quota_us': '200000', 'cpu/cpu.cfs_period_us': '100000'}, 2),
        (['4:cpuset:/', '3:memory:/'], [('/', 'cpuset', 'cgroup cgroup rw,cpuset')],
         {'cpuset/cpu.cfs_quota_us': '100000', 'cpuset/cpu.cfs_period_us': '100000'}, None),
        (['4:cpu:/', '0::/x'], [('/', 'cpu', 'cgroup cgroup rw,cpu'), V2],  # both versions at once
         {'cpu/cpu.cfs_quota_us': '500000', 'cpu/cpu.cfs_period_us': '100000', 'fs/x/cpu.max': 'max 100000'}, 5),
    ],
)  # fmt: skip
def test_limits_of_control_groups(groups, monkeypatch, own, mounts, files, expected):
    assert groups(own, mounts, files) == expected
    monkeypatch.setattr(os, 'sched_getaffinity', lambda _: set(range(64)))
    monkeypatch.setattr(cores, 'container_cores', lambda: expected)
    assert cores.available_cores() == (expected or 64)


def test_names_of_other_mounts_may_have_any_bytes(groups, tmp_path):
    groups(['0::/'], [V2], {'fs/cpu.max': '400000 100000'})
    mounts = tmp_path / 'mountinfo'
    mounts.write_bytes(b'40 1 8:17 / /media/M\xfcller\x0b\xe2\x80\xa8 rw - vfat /dev/sdb1 rw\n' + mounts.read_bytes())
    assert cores.container_cores(tmp_path) == 4


def test_escaped_characters_of_a_mount_are_read(groups):
    assert groups(['0::/'], [('/', r'a\040b\134', 'cgroup2 cgroup2 rw')], {'a b\\/cpu.max': '300000 100000'}) == 3


def test_systems_without_control_groups_have_no_limit(tmp_path):
    assert cores.container_cores(tmp_path) is None


@pytest.mark.parametrize(('chosen', 'expected'), [(None, [2]), ('7', []), ('', [2])])
@pytest.mark.parametrize('name', cores.THREADS)
def test_a_limit_is_for_torch_only_and_the_environment_for_the_user(monkeypatch, name, chosen, expected):
    for one in cores.THREADS:
        monkeypatch.delenv(one, raising=False)
    if chosen is not None:
        monkeypatch.setenv(name, chosen)
    found, before = [], dict(os.environ)
    monkeypatch.setattr(cores, 'container_cores', lambda: 2)
    monkeypatch.setattr(torch, 'get_num_threads', lambda: 64)
    monkeypatch.setattr(torch, 'set_num_threads', found.append)
    cores.limit_threads()
    assert (found, dict(os.environ)) == (expected, before)
    import_openmmlab()  # of a program that has imported PyTorch before
    assert found == expected


@pytest.mark.slow
def test_a_command_in_a_container_has_the_threads_of_its_limit():
    code = (
        'from tokennorm.base import cores; cores.container_cores = lambda: 1\n'
        'from tokennorm.commands.importing import import_openmmlab; import_openmmlab()\n'
        'import os, torch; print(torch.get_num_threads(), "OMP_NUM_THREADS" in os.environ)'
    )
    variables = {name: value for name, value in os.environ.items() if name not in cores.THREADS}
    run = subprocess.run([sys.executable, '-c', code], env=variables, capture_output=True, text=True, check=True)
    assert run.stdout.split()[-2:] == ['1', 'False']


STAT = """cpu  9999 9999 9999 9999 0 0 0 0 0 0
cpu0 {0} {1} 10 500 900 3 4 5 0 0
cpu1 {0} 50 10 500 900 3 4 5 0 0
cpu2 {2} 50 10 500 900 3 4 5 0 0
intr 1 2 3
"""


@pytest.mark.parametrize(
    ('user', 'nice', 'elsewhere', 'own', 'expected'),
    [
        (0, 0, 0, 0, 0.0),
        (1000, 0, 0, 0, 2.0),  # ticks of each of two cores in 10 seconds
        (1000, 0, 0, 10, 1.0),
        (500, 0, 5000, 10, 0.0),  # on a core that this process may not use
        (0, 1000, 0, 0, 0.0),  # of low priority
        (0, 0, 0, 0.1, 0.0),  # rounded
    ],
)
def test_cores_that_other_programs_keep_busy(tmp_path, monkeypatch, user, nice, elsewhere, own, expected):
    monkeypatch.setattr(cores, 'STAT', tmp_path / 'stat')
    monkeypatch.setattr(os, 'sched_getaffinity', lambda _: {0, 1})
    monkeypatch.setattr(os, 'sysconf', lambda _: 100)
    monkeypatch.setattr(os, 'nice', lambda _: 0)
    monkeypatch.setattr(os, 'times', lambda: (0.0, 0.0, 0.0, 0.0, 5.0))
    monkeypatch.setattr(time, 'monotonic', lambda: 100.0)
    cores.STAT.write_text(STAT.format(70, 60, 80))
    others = cores.OtherPrograms()
    assert others.cores() == 0  # no time has passed
    monkeypatch.setattr(time, 'monotonic', lambda: 110.0)
    monkeypatch.setattr(os, 'times', lambda: (own, 0.0, 0.0, 0.0, 15.0))
    cores.STAT.write_text(STAT.format(70 + user, 60 + nice, 80 + elsewhere))
    assert others.cores() == pytest.approx(expected)


def test_systems_that_do_not_tell_have_no_busy_cores(tmp_path, monkeypatch):
    monkeypatch.setattr(cores, 'STAT', tmp_path / 'none')
    assert cores.OtherPrograms().cores() == 0
