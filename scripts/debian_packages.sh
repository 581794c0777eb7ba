#!/usr/bin/env bash
# Install Debian's packages that tests of clusters use: a real Slurm with its munge. A second call does nothing.
#
#   usage: bash scripts/debian_packages.sh
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive PATH="$PATH:/usr/sbin"
if ! command -v slurmctld >/dev/null || ! command -v munged >/dev/null; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "debian_packages: slurm-wlm and munge must be installed, and this user cannot: root and apt-get are needed." >&2
    exit 1
  fi
  timeout 120 apt-get --quiet --quiet update
  timeout 240 apt-get --quiet --quiet install --yes --no-install-recommends slurm-wlm munge >/dev/null
fi
slurmctld -V
