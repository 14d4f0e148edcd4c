"""The workflow's files stand at the top of the repository, where Snakemake looks for them; a wheel
has them, too.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

TOP = Path(__file__).parent
FILES = ("Snakefile", "config.yaml", "configs/full.yaml", "configs/ci/smoke.yaml")
FOLDERS = ("workflow", "profiles", "envs")
LEFT_OUT = shutil.ignore_patterns(
    "__pycache__", "*.def", "requirements-*.txt"
)  # the last two are for clones


class WithWorkflow(build_py):
    """Copies them to `ragauge/_workflow` of what is built; an editable installation reads those of
    its clone.
    """

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib, "ragauge", "_workflow")
        shutil.rmtree(target, ignore_errors=True)  # of an earlier build
        for name in FOLDERS:
            shutil.copytree(TOP / name, target / name, ignore=LEFT_OUT)
        for name in FILES:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(TOP / name, target / name)


setup(cmdclass={"build_py": WithWorkflow})
