"""A Slurm cluster of one node on this machine, to try the profile on.

python tests/support/one_node_slurm.py start FOLDER    # installs Slurm if missing (Debian, root)
. FOLDER/env.sh                                        # so that Snakemake's profile finds it
python tests/support/one_node_slurm.py stop FOLDER     # ends its jobs and its daemons
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
WAIT_S = 60

# No accounting (squeue shows jobs for an hour after their end), no cgroups and no systemd, so that
# it runs in a container. CPUs, memory and two GPUs are what jobs ask for and what the scheduler
# counts; no job meets a GPU.
GPUS = "Name=gpu File=/dev/null,/dev/zero\n"
CONFIGURATION = """\
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerParameters=sched_interval=2,bf_interval=2
MinJobAge=3600
KillWait=5
ReturnToService=2
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory_mb} Feature=tested Gres=gpu:2 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
PartitionName=spare Nodes={host} MaxTime=INFINITE State=UP OverSubscribe=NO
"""


def missing():
    """Why no cluster can be started here; None where it can."""
    if not all(shutil.which(daemon) for daemon in DAEMONS) and not shutil.which("apt-get"):
        return (
            "needs Slurm and munge (slurmctld, slurmd, munged), or Debian's apt-get to install them"
        )
    return None if os.geteuid() == 0 else "needs root, to start Slurm's daemons"


def start(folder):
    """Start a cluster and wait for its node.

    Returns:
        The environment variables that Slurm's commands need.

    Raises:
        RuntimeError: the node was not up in time; the daemons have been stopped.
    """
    install()
    for name in ("state", "spool", "bin", "log"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    environment = _write_files(folder)
    commands = {
        "munged": _munged(folder),
        "slurmctld": ["slurmctld", "-D", "-f", f"{folder}/slurm.conf"],
        "slurmd": ["slurmd", "-D", "-f", f"{folder}/slurm.conf"],
    }
    pids = {name: _daemon(folder / "log" / name, command) for name, command in commands.items()}
    (folder / "pids.json").write_text(json.dumps(pids))
    if not _wait_until(
        lambda: _shown(["sinfo", "-h", "-o", "%T"], {**os.environ, **environment}).startswith(
            "idle"
        )
    ):
        stop(folder)
        raise RuntimeError(f"Slurm's node did not come up in {WAIT_S} s; {folder}/log says why")
    return environment


def stop(folder):
    """End the jobs and the daemons of the cluster in `folder`; its files stay."""
    pids = json.loads((folder / "pids.json").read_text())
    client = {**os.environ, "SLURM_CONF": f"{folder}/slurm.conf"}
    subprocess.run(["scancel", "--me"], env=client, capture_output=True)
    _wait_until(lambda: not _shown(["squeue", "--me", "--noheader"], client))
    for name in reversed(DAEMONS):
        if _is(pids[name], name):  # a number may have gone to another process since
            with suppress(ProcessLookupError):
                os.kill(pids[name], signal.SIGTERM)
            _wait_until(lambda name=name: not _is(pids[name], name))


def install():
    """Install Debian's packages where a daemon is missing."""
    if all(shutil.which(daemon) for daemon in DAEMONS):
        return
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], env=quiet, check=True)
    packages = ["slurm-wlm", "munge"]
    subprocess.run(
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages],
        env=quiet,
        check=True,
    )


def _write_files(folder):
    host = socket.gethostname().partition(".")[0]
    memory_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    configuration = CONFIGURATION.format(
        folder=folder, host=host, ports=_free_ports(2), cpus=os.cpu_count(), memory_mb=memory_mb
    )
    (folder / "slurm.conf").write_text(configuration)
    (folder / "gres.conf").write_text(GPUS)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    # Snakemake's plugin starts a job's step without SLURM_CONF, which a cluster in /etc/slurm does
    # without.
    step = folder / "bin" / "srun"
    step.write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {shutil.which("srun")} "$@"\n')
    step.chmod(0o755)
    environment = {
        "SLURM_CONF": f"{folder}/slurm.conf",
        "PATH": f"{folder}/bin{os.pathsep}{os.environ['PATH']}",
    }
    exports = [f"export SLURM_CONF='{folder}/slurm.conf'", f"export PATH='{folder}/bin':\"$PATH\""]
    (folder / "env.sh").write_text("\n".join(exports) + "\n")
    return environment


def _munged(folder):
    paths = {
        "key-file": "munge.key",
        "socket": "munge.socket",
        "pid-file": "munged.pid",
        "seed-file": "munge.seed",
    }
    options = [f"--{option}={folder / name}" for option, name in paths.items()]
    return ["munged", "--foreground", "--force", *options]


def _free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _daemon(log, command):
    """The process id of a daemon that outlives this process, which therefore does not wait for it."""
    append = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), append, 0o644),
    ]
    files.append((os.POSIX_SPAWN_DUP2, 1, 2))
    return os.posix_spawnp(command[0], command, os.environ, file_actions=files, setsid=True)


def _wait_until(happened):
    """Whether it happened in time."""
    deadline = time.monotonic() + WAIT_S
    while not (so := happened()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return so


def _shown(command, environment):
    return subprocess.run(command, env=environment, capture_output=True, text=True).stdout.strip()


def _is(pid, name):
    with suppress(OSError):
        status = Path(f"/proc/{pid}/stat").read_text()
        return f"({name})" in status and ") Z " not in status
    return False


if __name__ == "__main__":
    verb, place = sys.argv[1:]
    if verb == "stop":
        stop(Path(place).resolve())
    elif reason := missing():
        sys.exit(f"one_node_slurm: {reason}")
    else:
        start(Path(place).resolve())
        print(f". {Path(place).resolve()}/env.sh")
