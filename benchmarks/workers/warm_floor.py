"""The least that a warm run must do, on random vectors: warm_floor.py IN OUT CODEC.

Read, encode both columns as dictionaries, gather two vectors per pair, their dot product, the mean per row, write.
"""

import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DIMENSIONS = 384
PAIRS_AT_ONCE = 1024  # their vectors fit into a core's cache

source, out, codec = sys.argv[1:]
table = pq.read_table(source)
questions = table["question"].combine_chunks().dictionary_encode()
lists = table["contexts"].combine_chunks()
contexts = lists.flatten().dictionary_encode()
lengths = lists.value_lengths().to_numpy()
rng = np.random.default_rng(0)


def unit_vectors(count: int) -> np.ndarray:
    vectors = rng.standard_normal((count, DIMENSIONS), np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


asked, read = unit_vectors(len(questions.dictionary)), unit_vectors(len(contexts.dictionary))
q, c = np.repeat(questions.indices.to_numpy(), lengths), contexts.indices.to_numpy()
scores = np.empty(len(q))
for start in range(0, len(q), PAIRS_AT_ONCE):
    block = slice(start, start + PAIRS_AT_ONCE)
    scores[block] = np.einsum("ij,ij->i", asked[q[block]], read[c[block]])
means = np.add.reduceat(scores, np.cumsum(lengths) - lengths) / lengths
pq.write_table(table.append_column("score", pa.array(means)), out, compression=codec)
