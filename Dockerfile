# TokenNorm with its environment. Not built yet by the project: no container engine was available.
#   CPU:   docker build -t tokennorm .
#   CUDA:  docker build -t tokennorm --build-arg BASE=nvidia/cuda:13.0.0-devel-ubuntu24.04 .
# The CUDA base has nvcc, so mmcv is compiled with its CUDA operators.
ARG BASE=ubuntu:24.04
FROM ${BASE}

# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends build-essential ca-certificates make python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /tokennorm
COPY . .
RUN make env

ENV PATH=/tokennorm/.venv/bin:${PATH}
ENTRYPOINT ["tokennorm"]
CMD ["--help"]
