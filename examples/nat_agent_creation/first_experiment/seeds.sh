# To be sourced: `for_each_seed FUNCTION` plays a function, which must exec its program, with each seed of SEEDS ("0 1"):
# side by side where there is a GPU for each, else one after the other. Told to end, it waits for what it started: runs
# save what they have.
read -ra seeds <<< "${SEEDS:-0 1}"
running=()
stop() {
  trap '' TERM INT
  for process in "${running[@]}"; do kill -TERM "$process" 2> /dev/null || true; done
  for process in "${running[@]}"; do wait "$process" || true; done
  exit 143
}
trap stop TERM INT
wait_for_all() {
  local code=0
  for process in "${running[@]}"; do wait "$process" || code=$?; done
  running=()
  [ "$code" = 0 ] || exit "$code"
}
for_each_seed() {
  local num_gpus place
  num_gpus=$({ nvidia-smi --list-gpus 2> /dev/null || true; } | grep -c GPU || true)
  for place in "${!seeds[@]}"; do
    (
      [ "$num_gpus" -lt "${#seeds[@]}" ] || export CUDA_VISIBLE_DEVICES=$place
      "$1" "${seeds[place]}"
    ) &
    running+=("$!")
    [ "$num_gpus" -ge "${#seeds[@]}" ] || wait_for_all
  done
  wait_for_all
}
