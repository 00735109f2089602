#!/usr/bin/env bash
# Evaluates on several GPUs of one or more machines: tools/dist_test.sh CONFIG CHECKPOINT GPUS [arguments of tools/test.py]
# More than one machine: the same command on each, with NNODES, NODE_RANK (0, 1, ...), MASTER_ADDR and PORT.
set -euo pipefail

if [ $# -lt 3 ]; then
    sed -n '2,3s/^# //p' "$0" >&2
    exit 2
fi
CONFIG=$1
CHECKPOINT=$2
GPUS=$3

exec "${PYTHON:-python}" -m torch.distributed.run \
    --nnodes="${NNODES:-1}" --node_rank="${NODE_RANK:-0}" --nproc_per_node="$GPUS" \
    --master_addr="${MASTER_ADDR:-127.0.0.1}" --master_port="${PORT:-29500}" \
    "$(dirname "$0")/test.py" "$CONFIG" "$CHECKPOINT" --launcher pytorch "${@:4}"
