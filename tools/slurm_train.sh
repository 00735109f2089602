#!/usr/bin/env bash
# Trains under Slurm, one torchrun on each machine:
# tools/slurm_train.sh PARTITION JOB_NAME CONFIG WORK_DIR [arguments of tools/train.py]
# GPUS (8 in all), GPUS_PER_NODE (8), CPUS_PER_TASK (5 for a GPU) and SRUN_ARGS are taken from the environment, and PORT,
# which is otherwise a number made from that of the job.
set -euo pipefail

if [ $# -lt 4 ]; then
    sed -n '2,5s/^# //p' "$0" >&2
    exit 2
fi
PARTITION=$1
JOB_NAME=$2
CONFIG=$3
WORK_DIR=$4
GPUS=${GPUS:-8}
GPUS_PER_NODE=${GPUS_PER_NODE:-$((GPUS < 8 ? GPUS : 8))}
if ((GPUS % GPUS_PER_NODE)); then
    echo "error: GPUS=$GPUS must be a multiple of GPUS_PER_NODE=$GPUS_PER_NODE" >&2
    exit 2
fi
NODES=$((GPUS / GPUS_PER_NODE))

# Runs on each machine, with what Slurm says of it there.
ON_NODE='export NNODES=$SLURM_NNODES NODE_RANK=$SLURM_NODEID PORT=${PORT:-$((20000 + SLURM_JOB_ID % 10000))}
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR
exec "$@"'

# SRUN_ARGS holds several arguments and is split on purpose.
# shellcheck disable=SC2086,SC2016
exec srun --partition="$PARTITION" --job-name="$JOB_NAME" \
    --gres=gpu:"$GPUS_PER_NODE" --nodes="$NODES" --ntasks="$NODES" --ntasks-per-node=1 \
    --cpus-per-task="$((${CPUS_PER_TASK:-5} * GPUS_PER_NODE))" --kill-on-bad-exit=1 ${SRUN_ARGS:-} \
    bash -c "$ON_NODE" bash "$(dirname "$0")/dist_train.sh" "$CONFIG" "$GPUS_PER_NODE" --work-dir "$WORK_DIR" "${@:5}"
