"""Builds a graph with hnswlib or faiss and searches it; prints the same lines as the program `graph`."""
import argparse
import time

import numpy

arguments = argparse.ArgumentParser()
arguments.add_argument("library", choices=["hnswlib", "faiss"])
arguments.add_argument("base")
arguments.add_argument("queries")
arguments.add_argument("exact", help="true neighbors: ten u32 per query")
arguments.add_argument("--metric", choices=["l2", "ip", "cosine"])
arguments.add_argument("--m", type=int)
arguments.add_argument("--ef-construction", type=int)
arguments.add_argument("--threads", type=int)
options = arguments.parse_args()


def status(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def load(path):
    vectors = numpy.load(path).astype(numpy.float32)
    if options.metric == "cosine":
        vectors /= numpy.maximum(numpy.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)
    return vectors


base, queries = load(options.base), load(options.queries)
exact = numpy.fromfile(options.exact, dtype=numpy.uint32).reshape(len(queries), -1)
rows, dims = base.shape

if options.library == "hnswlib":
    import hnswlib

    index = hnswlib.Index(space="l2" if options.metric == "l2" else "ip", dim=dims)
    index.init_index(max_elements=rows, ef_construction=options.ef_construction, M=options.m)
    index.set_num_threads(options.threads)
    build = lambda: index.add_items(base)

    def search(ef):
        index.set_ef(ef)
        return index.knn_query(queries, k=10)[0], 0
else:
    import faiss

    faiss.omp_set_num_threads(options.threads)
    metric = faiss.METRIC_L2 if options.metric == "l2" else faiss.METRIC_INNER_PRODUCT
    index = faiss.IndexHNSWFlat(dims, options.m, metric)
    index.hnsw.efConstruction = options.ef_construction
    build = lambda: index.add(base)

    def search(ef):
        index.hnsw.efSearch = ef
        faiss.cvar.hnsw_stats.reset()
        found = index.search(queries, 10)[1]
        return found, faiss.cvar.hnsw_stats.ndis

with open("/proc/self/clear_refs", "w") as forget:
    forget.write("5")
before, start = status("VmRSS"), time.perf_counter()
build()
seconds = time.perf_counter() - start
print(f"{rows} x {dims} seconds {seconds:.3f} peak {status('VmHWM') - before}")
for ef in [40, 100, 200]:
    found, distances = search(ef)
    hits = sum(len(set(row.tolist()) & set(true.tolist())) for row, true in zip(found, exact))
    print(f"ef {ef} recall {hits / exact.size:.5f} distances {distances / len(queries):.1f} pages 0.0")
