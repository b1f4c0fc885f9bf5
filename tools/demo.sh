#!/bin/bash
# What ./dev demo shows: text generated, a look inside, and an edit that changes the answer; all on SmolLM2-135M.
set -euo pipefail
cd "${PELLUCID_ROOT:?start this with ./dev demo}"
pellucid=build/dev/apps/cli/pellucid
python=.venv/bin/python
export PYTHONPATH="build/dev/python${PYTHONPATH:+:$PYTHONPATH}"

title() { printf '\n%s\n%s\n' "$1" "$(printf '%*s' ${#1} '' | tr ' ' -)"; }

# shown TITLE COMMAND...: the command as one would type it, then what it prints.
shown() {
  title "$1"
  shift
  printf '$'
  printf ' %q' "${@/#$pellucid/pellucid}" | sed -E 's/([^ ]*\\ [^ ]*(\\ [^ ]*)*)/"\1"/; s/\\ / /g'
  printf '\n\n'
  "$@" || {
    echo "dev: the demo stopped at this command; ./dev test shows what is wrong." >&2
    exit 1
  }
}

[ -x "$pellucid" ] || {
  echo "dev: $pellucid is not there: ./dev build shows why." >&2
  exit 1
}
shown "1. A model runs" "$pellucid" run smollm2 "The Eiffel Tower is in the city of" --max-tokens 40
shown "2. What each layer would say" "$pellucid" lens smollm2 "The capital of France is"
if [ -e examples/first_light.py ]; then
  shown "3. Paris turns into Rome: France's residual replaced with Italy's" "$python" examples/first_light.py
fi
