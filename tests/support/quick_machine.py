"""Rates of the machine measured in milliseconds, no long wait for another try, where they are not
what is tested.
"""

from ragauge.cost import machine
from ragauge.pipelines.service import jobs

SHORTENED = {
    "ATTEMPTS": 1,
    "BUDGET_S": 0.001,
    "PAUSE_S": 0.0,
    "CPU_READ_BYTES": 1 << 24,
    "CPU_MATMUL_SIDE": 64,
}


def shorten():
    for module, values in ((machine, SHORTENED), (jobs, {"FAILED_S": 2.0})):
        for name, value in values.items():
            assert hasattr(module, name), name
            setattr(module, name, value)
