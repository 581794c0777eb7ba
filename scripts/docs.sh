#!/usr/bin/env bash
# Build the site of docs/ into site/; a broken link or anchor, a page outside the navigation, or one that loads something
# from elsewhere fails. Search works where the site is served, for instance by `python -m http.server -d site`.
#
#   usage: bash scripts/docs.sh            build
#          bash scripts/docs.sh serve      build, and show it on http://127.0.0.1:8000 as it is written
#
# What it needs is pinned in requirements/docs.lock and installed into .venv-docs on the first call.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${SKYRL_NAT_PYTHON:-$(command -v python3.11 || command -v python3.12 || echo python3)}
venv=.venv-docs
stamp="$venv/complete-$(cksum < requirements/docs.lock | cut -d' ' -f1)"
if [ ! -e "$stamp" ]; then
  "$python" -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r requirements/docs.lock
  touch "$stamp"
fi
export NO_MKDOCS_2_WARNING=1
case "${1:-build}" in
  build)
    "$venv/bin/mkdocs" build --strict --clean
    if grep -rlE '<(script|link|img|iframe)[^>]* (src|href)="?(https?:)?//' site --include='*.html'; then
      echo "docs: these pages must load nothing from elsewhere. Leave it out of mkdocs.yml or the page" >&2
      exit 1
    fi
    echo "docs: the site is in site/; look at site/index.html"
    ;;
  serve) exec "$venv/bin/mkdocs" serve --strict --dev-addr 127.0.0.1:8000 ;;
  *) sed -n '2,8p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
