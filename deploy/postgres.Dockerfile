# syntax=docker/dockerfile:1
# PostgreSQL with pgvector and the library lantern_index:
#   docker build --file deploy/postgres.Dockerfile --tag lantern-index-postgres .
ARG POSTGRES=18
ARG PGVECTOR=0.8.7
ARG RUST=1.95

FROM rust:${RUST}-bookworm AS rust

FROM pgvector/pgvector:${PGVECTOR}-pg${POSTGRES} AS build
ARG POSTGRES
COPY --from=rust /usr/local/rustup /usr/local/rustup
COPY --from=rust /usr/local/cargo /usr/local/cargo
ENV RUSTUP_HOME=/usr/local/rustup CARGO_HOME=/usr/local/cargo PATH=/usr/local/cargo/bin:$PATH
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates g++ libclang-dev "postgresql-server-dev-${POSTGRES}" \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN set -eu; \
    cargo --locked xtask install --pg-config "/usr/lib/postgresql/${POSTGRES}/bin/pg_config"; \
    mkdir -p "/out/usr/lib/postgresql/${POSTGRES}/lib" "/out/usr/share/postgresql/${POSTGRES}/extension"; \
    cp "/usr/lib/postgresql/${POSTGRES}/lib/lantern_index.so" "/out/usr/lib/postgresql/${POSTGRES}/lib/"; \
    cp "/usr/share/postgresql/${POSTGRES}/extension/lantern_index"* "/out/usr/share/postgresql/${POSTGRES}/extension/"

FROM pgvector/pgvector:${PGVECTOR}-pg${POSTGRES}
COPY --from=build /out/ /
CMD ["postgres", "-c", "shared_preload_libraries=lantern_index"]
