#!/usr/bin/env bash
# A row of the table "By hand": `tune` for 5 and 10 minutes on the first GPU, by hand on the second.
#
#   hand_row.sh SCRIPT KEPT SECONDS PYTHON
#
# SCRIPT is a name of public_scripts.toml whose code lies in KEPT/public. Both are compared on the
# first GPU when the search by hand is over, in fresh runs; about 3 minutes are kept for that.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
script=$1 kept=$2 seconds=$3 python=$4
began=$SECONDS
IFS=, read -r first second <<<"${CUDA_VISIBLE_DEVICES:-0,1}"
here=$kept/hand-$script
mkdir -p "$here"
"$python" "$root/benchmarks/fetch_public.py" "$kept/public" --data --only "$script"
eval "$("$python" "$root/benchmarks/fetch_public.py" "$kept/public" --show "$script")"
tune() {
    CUDA_VISIBLE_DEVICES=$first GPUADVISOR_HOME=$here/home-$1 \
        "$python" -m gpuadvisor tune --budget "$1" --json --plan "$here/$1.plan.toml" "${command[@]}" \
        >"$here/$1.json" 2>"$here/$1.log"
}
command=("$1" -- "${@:2}")
export PYTHONPATH="$root/src${PYTHONPATH:+:$PYTHONPATH}"

(tune 5m; tune 10m) &
search=$((seconds - (SECONDS - began) - 200))
CUDA_VISIBLE_DEVICES=$second GPUADVISOR_HOME=$here/home-hand \
    "$python" "$root/benchmarks/by_hand.py" "$here/runs.jsonl" --python "$python" --seconds "$search" \
    -- "$1" "${@:2}" >"$here/hand.log" 2>&1
wait
CUDA_VISIBLE_DEVICES=$first GPUADVISOR_HOME=$here/home-compared \
    "$python" "$root/benchmarks/by_hand.py" "$here/runs.jsonl" --python "$python" --seconds 1 \
    --compare "5m=$here/5m.json" "10m=$here/10m.json" -- "$1" "${@:2}"
tail -n 3 "$here"/*.log
cp "$here/runs.json" "$kept/hand-$script.json"
cp "$here/runs.jsonl" "$kept/hand-$script.jsonl"
cp "$here/5m.json" "$kept/hand-$script-5m.json"
cp "$here/10m.json" "$kept/hand-$script-10m.json"
