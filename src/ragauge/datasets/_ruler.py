"""RULER's tasks (Hsieh et al., COLM 2024) as sets of equally long documents, at any length.

Tasks, questions, numbers of needles and answer lengths are those of NVIDIA/RULER at c3f5e3b
(scripts/synthetic.yaml, scripts/data/synthetic). What differs: the context is a set of documents
rather than one text, text around needles is our own, no task has a solved example, and the beginning
of the answer is not part of the prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from ragauge.datasets.base.dataset import Dataset, Document, Example, reordered
from ragauge.options import PositiveInt


@dataclass(frozen=True)
class RulerDataset(Dataset):
    """Documents of equal length, made by the seed.

    The data set does not know the reader, so that `tokens` is what common words and digits would be.
    """

    tokens: PositiveInt = 4096  # of all documents, about
    documents: PositiveInt = 20

    def arranged(self, number: int, example: Example, texts: Sequence[str]) -> Example:
        """Return an example with these documents, in which its gold ones are known by their places.

        The order is drawn for as many questions as there are documents and turned by one with each
        question, so that every place has equally many gold documents.

        Args:
            number: of the question, from 0.
        """
        count = len(texts)
        order = Random(f"{self.seed} {number // count}").sample(range(count), count)
        turn = number % count
        documents = tuple(Document("", text) for text in texts)
        return reordered(replace(example, documents=documents), order[turn:] + order[:turn])
