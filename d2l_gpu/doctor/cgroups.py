"""What a container or a batch system lets a process have: Linux control groups, versions 1 and 2.

Python's `os.cpu_count()` and PyTorch's number of threads do not look here. Sources: the Linux kernel's documentation,
"Control Group v2" (cpu.max, memory.max) and "CFS Bandwidth Control" (cpu.cfs_quota_us, cpu.cfs_period_us).
"""

from pathlib import Path


def limits(root="/"):
    """(CPUs, bytes) that the control groups of this process allow, each None where nothing limits it.

    A group is limited by those above it, so the smallest limit counts. `root` is for tests.
    """
    cpus, memory = [], []
    for group in _groups(Path(root)):
        quota = _words(group / "cpu.max")  # "200000 100000", or "max 100000"
        if not quota:
            quota = _words(group / "cpu.cfs_quota_us") + _words(group / "cpu.cfs_period_us")  # -1: no limit
        if len(quota) == 2 and quota[0].isdecimal():
            cpus.append(int(quota[0]) / int(quota[1]))
        for word in (_words(group / "memory.max") or _words(group / "memory.limit_in_bytes"))[:1]:
            if word.isdecimal() and int(word) < 2**60:  # "max"; version 1 writes a number near 2**63
                memory.append(int(word))
    return min(cpus, default=None), min(memory, default=None)


def _groups(root):
    """The folders that describe this process's groups and those above. Inside a container the path that /proc shows
    may be the host's, which is not there; the mounted root is then the container's own group."""
    mount = root / "sys/fs/cgroup"
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "cpu", "cpu,cpuacct", "cpuacct,cpu", "memory"):
            inside = [part for part in path.split("/") if part not in ("", "..")]
            yield from ((mount / controllers).joinpath(*inside[:k]) for k in range(len(inside) + 1))


def _words(path):
    try:
        return path.read_text().split()
    except OSError:
        return []
