"""A link between two network namespaces that takes its time: packets pass through this process, which holds them back.

    python tests/delayed_link.py FOLDER-OF-NAMESPACES A 10.1.1.1/24 B 10.1.1.2/24 0.0005

Prints `up` when it is. SIGUSR1 cuts it, so that packets are lost without a word; SIGUSR2 mends it. Needs root and
/dev/net/tun, and no module of the kernel's traffic control.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections import deque

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
LONGEST_PACKET = 65535


def main(folder: str, near: str, near_address: str, far: str, far_address: str, delay_s: str) -> None:
    ends = [_device(f"{folder}/{near}", near_address), _device(f"{folder}/{far}", far_address)]
    cut = [False]
    signal.signal(signal.SIGUSR1, lambda *_: cut.__setitem__(0, True))
    signal.signal(signal.SIGUSR2, lambda *_: cut.__setitem__(0, False))
    print("up", flush=True)
    _forward(ends, float(delay_s), cut)


def _device(namespace: str, address: str) -> int:
    """A network device with an address in a namespace; the descriptor that its packets are read from."""
    with open(namespace) as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    device = os.open("/dev/net/tun", os.O_RDWR)
    name = f"rg{address.split('.')[2]}"
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    subprocess.run(["ip", "address", "add", address, "dev", name], check=True)
    subprocess.run(["ip", "link", "set", name, "up"], check=True)
    return device


def _forward(ends: list[int], delay_s: float, cut: list[bool]) -> None:
    """Hand every packet to the other end, `delay_s` after it came; none while the link is cut."""
    other = {ends[0]: ends[1], ends[1]: ends[0]}
    waiting: deque[tuple[float, int, bytes]] = deque()  # due, end, packet: in the order of their time
    while True:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for end in select.select(ends, [], [], timeout)[0]:
            packet = os.read(end, LONGEST_PACKET)
            if not cut[0]:
                waiting.append((time.monotonic() + delay_s, other[end], packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, end, packet = waiting.popleft()
            os.write(end, packet)


if __name__ == "__main__":
    main(*sys.argv[1:])
