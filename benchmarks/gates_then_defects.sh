#!/usr/bin/env bash
# What is left of the gates on a GPU, on two GPUs; then programs with one defect on both, each with
# half of the cores: gates_then_defects.sh KEPT SECONDS PYTHON
set -uo pipefail
kept=$1 seconds=$2 python=$3

"$python" benchmarks/gate_on_processes.py "$kept/gates_cuda.jsonl" --device cuda --lanes 2 \
    --cores "$(($(nproc) / 2))" --gates same=30,3%=10,kernel=2,graph_break=2 --seconds "$seconds"
mapfile -t cores < <("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')
half=$((${#cores[@]} / 2))
IFS=, read -r -a gpus <<<"$CUDA_VISIBLE_DEVICES"
for part in 0 1; do
    own=$(IFS=,; echo "${cores[*]:$((part * half)):$half}")
    CUDA_VISIBLE_DEVICES=${gpus[part]} taskset -c "$own" "$python" benchmarks/defects/record.py \
        "$kept/defects_$part.jsonl" --part "$part/8" --home "$kept/profiles_$part" \
        --seconds "$((seconds - SECONDS))" &
done
wait
