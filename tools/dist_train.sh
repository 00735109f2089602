#!/usr/bin/env bash
# Trains on several GPUs of one or more machines:
# tools/dist_train.sh CONFIG GPUS [arguments of tools/train.py]
# One machine takes any free port. More than one: the same command on each, with NNODES, NODE_RANK (0, 1, ...), and
# MASTER_ADDR and PORT (29500) of the first. Without a GPU the processes are on the CPU.
# MAX_RESTARTS=N: after a rank has died, up to N times, all ranks start again with --resume.
set -euo pipefail

if [ $# -lt 2 ]; then
    sed -n '2,6s/^# //p' "$0" >&2
    exit 2
fi
CONFIG=$1
GPUS=$2

if [ "${NNODES:-1}" = 1 ] && [ -z "${PORT:-}" ]; then
    WHERE=(--standalone)
else
    WHERE=(--nnodes="${NNODES:-1}" --node_rank="${NODE_RANK:-0}"
        --master_addr="${MASTER_ADDR:-127.0.0.1}" --master_port="${PORT:-29500}")
fi
RESUME=()
if [ -n "${MAX_RESTARTS:-}" ]; then
    RESUME=(--resume)
    # A store that outlives the ranks gives restarted ranks the addresses of dead ones (pytorch issue 135712).
    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
    if [ "${WHERE[0]}" != --standalone ]; then # machines that can meet again, and number themselves
        WHERE=(--nnodes="${NNODES:-1}" --rdzv_backend=c10d --rdzv_id="${JOB_ID:-tokennorm}"
            --rdzv_endpoint="${MASTER_ADDR:-127.0.0.1}:${PORT:-29500}")
    fi
    WHERE+=(--max_restarts="$MAX_RESTARTS")
fi
exec "${PYTHON:-python}" -m torch.distributed.run "${WHERE[@]}" --nproc_per_node="$GPUS" \
    "$(dirname "$0")/train.py" "$CONFIG" --launcher pytorch ${RESUME[@]+"${RESUME[@]}"} "${@:3}"
