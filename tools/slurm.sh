#!/usr/bin/env bash
# Trains or evaluates under Slurm, with one torchrun per machine:
# tools/slurm.sh train PARTITION JOB_NAME CONFIG WORK_DIR [arguments of tools/train.py]
# tools/slurm.sh test PARTITION JOB_NAME CONFIG CHECKPOINT [arguments of tools/test.py]
# The environment sets GPUS (8 in all), GPUS_PER_NODE (8), CPUS_PER_TASK (5 per GPU), SRUN_ARGS, and PORT (by default a
# number made from that of the job).
set -euo pipefail

if [ $# -lt 5 ] || { [ "$1" != train ] && [ "$1" != test ]; }; then
    sed -n '2,6s/^# //p' "$0" >&2
    exit 2
fi
MODE=$1
PARTITION=$2
JOB_NAME=$3
CONFIG=$4
FIFTH=$5
GPUS=${GPUS:-8}
GPUS_PER_NODE=${GPUS_PER_NODE:-$((GPUS < 8 ? GPUS : 8))}
if ((GPUS % GPUS_PER_NODE)); then
    echo "error: GPUS=$GPUS must be a multiple of GPUS_PER_NODE=$GPUS_PER_NODE" >&2
    exit 2
fi
NODES=$((GPUS / GPUS_PER_NODE))
if [ "$MODE" = train ]; then
    ARGUMENTS=("$CONFIG" "$GPUS_PER_NODE" --work-dir "$FIFTH")
else
    ARGUMENTS=("$CONFIG" "$FIFTH" "$GPUS_PER_NODE")
fi

# Runs on each machine, with Slurm's variables of that machine.
ON_NODE='export NNODES=$SLURM_NNODES NODE_RANK=$SLURM_NODEID PORT=${PORT:-$((20000 + SLURM_JOB_ID % 10000))}
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR
exec "$@"'

# SRUN_ARGS holds several arguments and is split on purpose.
# shellcheck disable=SC2086,SC2016
exec srun --partition="$PARTITION" --job-name="$JOB_NAME" \
    --gres=gpu:"$GPUS_PER_NODE" --nodes="$NODES" --ntasks="$NODES" --ntasks-per-node=1 \
    --cpus-per-task="$((${CPUS_PER_TASK:-5} * GPUS_PER_NODE))" --kill-on-bad-exit=1 ${SRUN_ARGS:-} \
    bash -c "$ON_NODE" bash "$(dirname "$0")/dist_$MODE.sh" "${ARGUMENTS[@]}" "${@:6}"
