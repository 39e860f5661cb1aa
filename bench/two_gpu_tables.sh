#!/usr/bin/env bash
# Builds, tests and measures on a machine with two GPUs, and leaves JSON lines of every table.
#
#   bench/two_gpu_tables.sh OUTPUT_FOLDER [STEP...]
#
# Steps, all by default, in this order: build tests captured eager threads plain knobs copied steps. Each writes files of
# its own in OUTPUT_FOLDER (.jsonl grows by a run, the rest is replaced; steps.json is Google Benchmark's) and can be run
# alone, where commands have a time limit. REPEAT=5 whole runs make a row of every table of the perf tool;
# BUILD is the build folder (build/two_gpu). NCCL's rows are those of its road through host memory (NCCL_P2P_DISABLE=1).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [[ $# -lt 1 ]]; then
  sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
mkdir -p "$1"
output=$(cd "$1" && pwd)
shift
build=${BUILD:-$root/build/two_gpu}
repeat=${REPEAT:-5}
export NCCL_P2P_DISABLE=1

perf() { # file, arguments
  local file=$1
  shift
  "$build/bin/peerless_all_reduce_perf" -g 2 --json-lines "$output/$file.jsonl" "$@" | tee "$output/$file.txt"
}

step_build() {
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPEERLESS_CUDA=ON ${COMMIT:+-DPEERLESS_COMMIT=$COMMIT} \
    ${ARCHITECTURES:+-DCMAKE_CUDA_ARCHITECTURES=$ARCHITECTURES}
  cmake --build "$build"
}
step_tests() { (cd "$build" && ctest -L gpu --output-on-failure --timeout 300 | tee "$output/tests.txt"); }
step_captured() { perf captured -b 1K -e 64M -f 2 --repeat "$repeat"; }
step_eager() { perf eager -b 1K -e 1M -f 4 -G 0 --repeat "$repeat"; }
step_threads() { perf threads -b 1K -e 64M -f 4 --threads --repeat "$repeat"; }
# As on GPUs before sm_90.
step_plain() { PEERLESS_DEPENDENT_LAUNCH=0 perf plain -b 1K -e 1M -f 2 --repeat "$repeat"; }
step_knobs() { perf knobs -b 1K -e 1M -f 4 --nccl-knobs --repeat "$repeat"; }
step_copied() {
  local chunk
  for chunk in 1M 2M 4M; do
    perf "copied_$chunk" -b 4M -e 64M -f 2 --transports shm,shm-copied --copy-chunk $chunk --repeat "$repeat"
    perf "copied_${chunk}_eager" -b 4M -e 64M -f 2 -G 0 --transports shm,shm-copied --copy-chunk $chunk --repeat "$repeat"
  done
}
step_steps() {
  "$build/bin/peerless_microbench" --benchmark_filter='enqueue_|duplex_|stage_' --benchmark_out="$output/steps.json" \
    --benchmark_out_format=json | tee "$output/steps.txt"
}

for step in "${@:-build tests captured eager threads plain knobs copied steps}"; do
  for each in $step; do
    if ! declare -F "step_$each" > /dev/null; then
      echo "no step is called '$each'" >&2
      exit 2
    fi
    "step_$each"
  done
done
