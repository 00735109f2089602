#!/usr/bin/env bash
# Evaluates under Slurm: tools/slurm_test.sh PARTITION JOB_NAME CONFIG CHECKPOINT [arguments of tools/test.py]
# GPUS (8 in all), GPUS_PER_NODE (8), CPUS_PER_TASK (5) and SRUN_ARGS are taken from the environment.
set -euo pipefail

if [ $# -lt 4 ]; then
    sed -n '2,3s/^# //p' "$0" >&2
    exit 2
fi
PARTITION=$1
JOB_NAME=$2
CONFIG=$3
CHECKPOINT=$4
GPUS=${GPUS:-8}
GPUS_PER_NODE=${GPUS_PER_NODE:-$((GPUS < 8 ? GPUS : 8))}

# SRUN_ARGS holds several arguments and is split on purpose.
# shellcheck disable=SC2086
exec srun --partition="$PARTITION" --job-name="$JOB_NAME" \
    --gres=gpu:"$GPUS_PER_NODE" --ntasks="$GPUS" --ntasks-per-node="$GPUS_PER_NODE" \
    --cpus-per-task="${CPUS_PER_TASK:-5}" --kill-on-bad-exit=1 ${SRUN_ARGS:-} \
    "${PYTHON:-python}" -u "$(dirname "$0")/test.py" "$CONFIG" "$CHECKPOINT" --launcher slurm "${@:5}"
