"""Processes that are killed in the middle of their work."""

import os
import signal

from ragauge.errors import UserError


def in_child(work):
    """Do the work in a forked process; return its exit code (2: a UserError) or minus the signal
    that killed it.
    """
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    status = 1
    try:
        work()
        status = 0
    except UserError:
        status = 2
    except SystemExit as end:
        status = int(end.code or 0)
    finally:
        os._exit(status)


def die_at(operation, calls, after=False):
    """From now on the given one of these calls (owner, name) of this process, counted from 0, is
    its last.
    """
    left = iter(range(operation, -1, -1))

    def dying(call):
        def wrapped(*arguments, **named):
            last = next(left) == 0
            if last and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return call(*arguments, **named)
            finally:
                if last:
                    os.kill(os.getpid(), signal.SIGKILL)

        return wrapped

    for owner, name in calls:
        setattr(owner, name, dying(getattr(owner, name)))
