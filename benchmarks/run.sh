#!/usr/bin/env bash
# Measure bars one after the other on the cards that are visible, each with the settings that did best so far.
#
#   usage: bash benchmarks/run.sh OUT SMOLLM2_FOLDER BAR [BAR ...]
#
#   one card    p1-p2 p1-p2-1.5b p3 p4 p6 sources engine-start presets
#   two cards   p4 p5 p7 p8 p8-apart (SKYRL_NAT_SANDBOX_PYTHON names an interpreter with NAT)
#   eight cards i1 i2 i3 i3-apart i4 i5 (settings that a plan says fit 80 GB a card; none has been run on eight)
#
# Writes OUT/BAR.json and OUT/BAR.log; random models of 1.5B, 7B and 32B are made in OUT/models once. A bar that fails
# does not stop the others; the exit code is then 1. TRL must be there for p1-p2 and p1-p2-1.5b (benchmarks/requirements.txt),
# which write OUT/BAR-P1.json and OUT/BAR-P2.json.
set -uo pipefail
[ $# -ge 3 ] || { sed -n '2,12p' "${BASH_SOURCE[0]}" >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHONPATH="$here/..${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
out=$1 smollm2=$2
shift 2
mkdir -p "$out/models"

# model SHAPE: the folder of a random model of that shape.
model() {
  [ -f "$out/models/$1/config.json" ] || python3 "$here/random_model.py" "$1" "$out/models/$1" "$smollm2" >&2
  echo "$out/models/$1"
}
quick=(model.compile=true model.logprob_chunk_tokens=4096)
# One token in 217 of a random model holds a z, which ends a turn as a real model would.
judges=(--workers 8 environment.sandbox.num_servers=4 'rollout.stop=["z"]'
  rollout.max_new_tokens=1500 rollout.max_total_tokens=8192)
# 32B over eight cards, the policy in host memory while engines play; a rollout waits long for its turn.
large=(model=qwen25_coder_32b model.sequence_parallel_size=8 cluster.start_timeout_s=1800 engine.start_timeout_s=1800
  engine.request_timeout_s=7200 rollout.rollout_timeout_s=7200)
# Apart, four cards hold no AdamW of 32B in fp32.
half=(model=qwen25_coder_32b model.offload=none model.dtype=bfloat16 cluster.start_timeout_s=1800
  engine.start_timeout_s=1800 trainer.micro_batch_tokens=1024)

measure() {
  local bar=$1
  case $bar in
    p1-p2) set -- against_peers.py "$smollm2" "${quick[@]}" engine.sleep=false ;;
    p1-p2-1.5b) set -- against_peers.py "$(model qwen2.5-1.5b)" --micro-batch 16 --checkpointing "${quick[@]}" \
      engine.sleep=false trainer.micro_batch_tokens=24576 ;;
    p3) set -- trainer_mfu.py "$(model qwen2.5-1.5b)" --tokens 16384 32768 49152 "${quick[@]}" ;;
    p4) set -- weight_push.py "$(model qwen2.5-1.5b)" ;;
    p5) set -- async_vs_sync.py "$smollm2" ;;
    p6) set -- logprob_gap.py "$smollm2" ;;
    p7) set -- large_model.py "$(model qwen2.5-7b)" ;;
    p8) set -- validators_wait.py "$(model qwen2.5-1.5b)" --steps 5 "${judges[@]}" ;;
    p8-apart) set -- validators_wait.py "$(model qwen2.5-1.5b)" --apart --steps 5 "${judges[@]}" ;;
    i1) set -- large_model.py "$(model qwen2.5-32b)" --bar I1 --gpus 8 --gpus-per-engine 4 --gpu-memory-fraction 0.7 \
      --tasks 64 --tokens 7936 --steps 3 --limit-s 7200 "${large[@]}" ;;
    i2) set -- scaling.py "$(model qwen2.5-1.5b)" "${quick[@]}" ;;
    i3) set -- weight_push.py "$(model qwen2.5-32b)" --bar I3 --variants colocated --gpus 8 --gpus-per-engine 4 \
      --limit-s 3600 "${large[@]}" ;;
    i3-apart) set -- weight_push.py "$(model qwen2.5-32b)" --bar I3 --variants apart --gpus 8 --gpus-per-engine 4 \
      --limit-s 3600 "${half[@]}" ;;
    i4) set -- async_vs_sync.py "$(model qwen2.5-1.5b)" --bar I4 --splits 4+4 6+2 --tasks 64 --mean 512 \
      --limit-s 1800 trainer.micro_batch_tokens=16384 "${quick[@]}" ;;
    i5) set -- validators_wait.py "$smollm2" --bar I5 --gpus 8 --as-played --steps 10 --tasks 64 --workers 16 \
      --limit-s 3600 environment.sandbox.num_servers=4 "${quick[@]}" ;;
    sources) set -- logprob_sources.py "$smollm2" ;;
    engine-start) set -- engine_start.py "$smollm2" ;;
    presets) set -- preset_runs.py "$smollm2" --streams 4 model.fp32_head=true model.fp32_residual=true ;;
    *) echo "run.sh: there is no bar $bar" >&2; return 2 ;;
  esac
  local script=$1
  shift
  python3 "$here/$script" "$@" --output "$out/$bar.json" > "$out/$bar.log" 2>&1
}

code=0
for bar in "$@"; do
  echo "== $bar"
  measure "$bar" || { code=1; echo "$bar failed, see $out/$bar.log" >&2; }
  tail -n 1 "$out/$bar.log" 2>/dev/null
done
exit $code
