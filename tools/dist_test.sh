#!/usr/bin/env bash
# Evaluates on several GPUs of one or more machines:
# tools/dist_test.sh CONFIG CHECKPOINT GPUS [arguments of tools/test.py]
# One machine takes any free port. More than one: the same command on each, with NNODES, NODE_RANK (0, 1, ...), and
# MASTER_ADDR and PORT (29500) of the first. Without a GPU the processes are on the CPU.
set -euo pipefail

if [ $# -lt 3 ]; then
    sed -n '2,5s/^# //p' "$0" >&2
    exit 2
fi
CONFIG=$1
CHECKPOINT=$2
GPUS=$3

if [ "${NNODES:-1}" = 1 ] && [ -z "${PORT:-}" ]; then
    WHERE=(--standalone)
else
    WHERE=(--nnodes="${NNODES:-1}" --node_rank="${NODE_RANK:-0}"
        --master_addr="${MASTER_ADDR:-127.0.0.1}" --master_port="${PORT:-29500}")
fi
exec "${PYTHON:-python}" -m torch.distributed.run "${WHERE[@]}" --nproc_per_node="$GPUS" \
    "$(dirname "$0")/test.py" "$CONFIG" "$CHECKPOINT" --launcher pytorch "${@:4}"
