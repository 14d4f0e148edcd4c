"""The machine's rates measured in milliseconds, for tests whose business they are not."""

from ragauge.cost import machine

SHORTENED = {"ATTEMPTS": 1, "BUDGET_S": 0.001, "PAUSE_S": 0.0, "CPU_READ_BYTES": 1 << 24, "CPU_MATMUL_SIDE": 64}


def shorten() -> None:
    for name, value in SHORTENED.items():
        assert hasattr(machine, name), name
        setattr(machine, name, value)
