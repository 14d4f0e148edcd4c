"""Product quantisation by matrix products: the same codes as faiss's, up to rounding, in a fraction
of the time.

faiss compares a vector's parts with centroids one by one where a part has few dimensions (the
paper's 64 bytes of 384 dimensions: 6). Here the nearest centroid has the least |c|^2 / 2 - xc, a
product over many vectors at once.
"""

from typing import Any

import numpy as np

# vectors at a time: their distances to the centroids stay in the processor's cache
ROWS = 256


class Coder:
    """Adds vectors to a trained IVF-PQ index of 8 bits a part."""

    def __init__(self, index: Any) -> None:
        """Take faiss's index, with centroids of residuals, as `index_factory` makes it."""
        import faiss
        import torch

        assert index.by_residual
        assert index.pq.nbits == 8
        torch.set_num_threads(faiss.omp_get_max_threads())
        pq = index.pq
        centroids = torch.from_numpy(faiss.vector_to_array(pq.centroids))
        self.index = index
        self._coarse = index.quantizer.reconstruct_n(0, index.nlist)
        self._centroids = centroids.view(pq.M, pq.ksub, pq.dsub).mT.contiguous()
        self._halves = self._centroids.square().sum(1, keepdim=True) / 2  # (part, 1, centroid)

    def add(self, vectors: np.ndarray, ids: np.ndarray) -> None:
        """Add vectors (n, dim) float32 with their ids (n,) int64."""
        lists = self.index.quantizer.search(vectors, 1)[1][:, 0].astype("<i8")
        codes = self.codes(vectors - self._coarse[lists])
        # as faiss stores codes outside of lists: the list's number in the fewest bytes, then the
        # parts
        numbers = lists.view(np.uint8).reshape(-1, 8)[:, : self.index.coarse_code_size()]
        self.index.add_sa_codes(np.concatenate([numbers, codes], 1), ids)

    def codes(self, residuals: np.ndarray) -> np.ndarray:
        """Return the centroids (n, part) uint8 that are nearest to residuals (n, dim) float32."""
        import torch

        nearest = np.empty((len(residuals), len(self._centroids)), np.uint8)
        for first in range(0, len(residuals), ROWS):
            rows = torch.from_numpy(residuals[first : first + ROWS])
            parts = rows.view(len(rows), len(self._centroids), -1).transpose(0, 1)
            distances = torch.baddbmm(self._halves, parts, self._centroids, alpha=-1)
            nearest[first : first + ROWS] = distances.argmin(-1).T.numpy()
        return nearest
