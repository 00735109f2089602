# TokenNorm with its environment. Not built yet by the project: no container engine was available.
#   docker build -t tokennorm .
#   docker run --rm --gpus all tokennorm train --help    # the pinned PyTorch brings CUDA 13; the host needs its driver only
FROM python:3.12-slim

# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends make \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /tokennorm
COPY . .
RUN make env

ENV PATH=/tokennorm/.venv/bin:${PATH}
ENTRYPOINT ["tokennorm"]
CMD ["--help"]
