"""Writes the files of a machine below a directory, as the kernel shows them below /."""

from __future__ import annotations

GIB = 2**30


def write(root, path, text):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


def machine(root, cpus="0-7", online="0-7", memory_kb=64 * 2**20, host="gpu-01"):
    write(root, "proc/self/status", f"Name:\tpython\nCpus_allowed:\tff\nCpus_allowed_list:\t{cpus}\nMems_allowed:\t1")
    write(root, "proc/meminfo", f"MemTotal:       {memory_kb} kB\nMemFree:        1024 kB")
    write(root, "proc/sys/kernel/hostname", host)
    if online is not None:
        write(root, "sys/devices/system/cpu/online", online)
    return root


def groups(root, own, *mounts):
    """`own`: lines of /proc/self/cgroup. Each mount: (top, point, kind, options)."""
    write(root, "proc/self/cgroup", "\n".join(own))
    lines = [f"31 23 0:28 {top} {point} rw shared:9 - {kind} {kind} {options}" for top, point, kind, options in mounts]
    write(root, "proc/self/mountinfo", "\n".join(["22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw", *lines]))


V2 = ("/", "/sys/fs/cgroup", "cgroup2", "rw")


def v1(controller, top="/"):
    return (top, f"/sys/fs/cgroup/{controller}", "cgroup", f"rw,{controller}")
