#!/usr/bin/env bash
# Trains on several GPUs of one or more machines: tools/dist_train.sh CONFIG GPUS [arguments of tools/train.py]
# More than one machine: the same command on each, with NNODES, NODE_RANK (0, 1, ...), MASTER_ADDR and PORT.
set -euo pipefail

if [ $# -lt 2 ]; then
    sed -n '2,3s/^# //p' "$0" >&2
    exit 2
fi
CONFIG=$1
GPUS=$2

exec "${PYTHON:-python}" -m torch.distributed.run \
    --nnodes="${NNODES:-1}" --node_rank="${NODE_RANK:-0}" --nproc_per_node="$GPUS" \
    --master_addr="${MASTER_ADDR:-127.0.0.1}" --master_port="${PORT:-29500}" \
    "$(dirname "$0")/train.py" "$CONFIG" --launcher pytorch "${@:3}"
