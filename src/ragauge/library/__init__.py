"""ragauge as a library, for notebooks and scripts: `import ragauge` gives the names below, and they alone are public.

They run the code that `ragauge run` and the workflow run, and read and write the same files.
"""
# ruff: noqa: F401

from ragauge.library.evaluation import evaluate
from ragauge.library.methods import Answer, Method, method
from ragauge.library.models import Model, load_model
from ragauge.library.questions import Dataset, Question, load_dataset
from ragauge.library.results import Results
