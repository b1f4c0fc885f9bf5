# Set-up steps of ./dev, to be sourced; needs bash, coreutils and dpkg only. Each step looks whether its work is already
# done (a stamp file holds the hash of what it was made from) and is silent then; otherwise it says what it does and how
# long that took. A step that fails says in one sentence what to do.

venv_python="$PELLUCID_ROOT/.venv/bin/python"
logs="$PELLUCID_ROOT/build/logs"
torch_version=2.13.0

export PELLUCID_MODELS="${PELLUCID_MODELS:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/pellucid/models}"
# ccache: a precompiled header needs the first; the others let several working copies share results.
export CCACHE_SLOPPINESS="${CCACHE_SLOPPINESS:-pch_defines,time_macros}"
export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$PELLUCID_ROOT}"
export CCACHE_NOHASHDIR="${CCACHE_NOHASHDIR:-1}"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONNOUSERSITE=1

fail() {
  printf 'dev: %s\n' "$*" >&2
  exit 1
}

step_done_note() { printf -- '-- %s\n' "$*" >&2; }

# step LOG_NAME TEXT COMMAND...: runs COMMAND with its output in build/logs, shows the end of that when it fails.
step() {
  local log="$logs/$1.log" text=$2 begin=$SECONDS
  shift 2
  mkdir -p "$logs"
  printf -- '-- %s ... ' "$text" >&2
  if "$@" >"$log" 2>&1 </dev/null; then
    printf '%d s\n' $((SECONDS - begin)) >&2
  else
    printf 'failed after %d s; the end of %s:\n' $((SECONDS - begin)) "$log" >&2
    tail -n 40 "$log" >&2
    return 1
  fi
}

hash_of() { sha256sum "$@" | sha256sum | cut -c 1-16; }

listed() { grep -v '^#' "$1" | grep -v '^$'; }

# ---- Debian packages

setup_packages() {
  local list="$PELLUCID_ROOT/tools/debian-packages.txt"
  if [ "${PELLUCID_PACKAGES:-}" = skip ]; then return; fi
  if ! command -v dpkg-query >/dev/null; then
    check_tools "$list"
    return
  fi
  local wanted installed missing=() package
  mapfile -t wanted < <(listed "$list")
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null || true)
  for package in "${wanted[@]}"; do
    [[ $'\n'"$installed"$'\n' == *$'\n'"installed $package"$'\n'* ]] || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return

  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      as_root=(sudo -n)
    else
      fail "Debian packages are missing and this user cannot install them; as root run:
  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}
then start ./dev again."
    fi
  fi
  step apt-update "Asking Debian what is available (apt-get update)" \
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update ||
    fail "apt-get update failed: check the network and /etc/apt, then start ./dev again."
  step apt-install "Installing ${#missing[@]} Debian packages: ${missing[*]}" \
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" ||
    fail "apt-get could not install the packages above (they are Debian 12's): see the log, then start ./dev again."
}

# Not Debian: the tools that can be looked for are looked for; CMake names missing libraries later.
check_tools() {
  local tool missing=()
  for tool in g++ cmake ninja ccache mold pkg-config git python3 protoc; do
    command -v "$tool" >/dev/null || missing+=("$tool")
  done
  [ ${#missing[@]} -eq 0 ] ||
    fail "this is no Debian machine and ${missing[*]} cannot be found; install what Debian 12 calls $(listed "$1" | tr '\n' ' ')and start ./dev again."
}

# ---- the virtual environment

setup_venv() {
  local python=${PELLUCID_PYTHON:-python3} stamp="$PELLUCID_ROOT/.venv/pellucid-requirements.stamp"
  if [ ! -x "$venv_python" ]; then
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
      fail "'$python' is no Python of version 3.10 or newer; point PELLUCID_PYTHON to one."
    rm -f "$stamp"
    step venv "Making the virtual environment .venv from $python" \
      "$python" -m venv "$PELLUCID_ROOT/.venv" ||
      fail "python3 -m venv failed; delete .venv and start ./dev again."
  fi
  local want
  want="$(hash_of "$PELLUCID_ROOT/tools/requirements.txt") $torch_version ${PELLUCID_TORCH:-} ${PELLUCID_CUDA:-}"
  [ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && return
  setup_torch
  step pip "Installing the Python packages of tools/requirements.txt" \
    "$venv_python" -m pip install -r "$PELLUCID_ROOT/tools/requirements.txt" ||
    fail "pip could not install tools/requirements.txt: check the network, then start ./dev again."
  printf '%s' "$want" >"$stamp"
}

# Prints the version of torch in the virtual environment, without importing it (seconds); nothing when there is none.
installed_torch() {
  "$venv_python" -c 'from importlib.metadata import version; print(version("torch"))' 2>/dev/null || true
}

setup_torch() {
  local have
  have=$(installed_torch)
  if [ -n "${PELLUCID_TORCH:-}" ]; then
    install_chosen_torch "$PELLUCID_TORCH" "$have"
  elif [ "${PELLUCID_CUDA:-}" = 1 ]; then
    # === matches the plain version only, never 2.13.0+cpu.
    case "$have" in
      "$torch_version" | "$torch_version"+cu*) ;;
      *) pip_torch "plain PyPI's CUDA build (gigabytes on x86-64)" "torch===$torch_version" ;;
    esac
  else
    case "$have" in
      "$torch_version" | "$torch_version"+*) ;;
      *)
        step_done_note "PyPI's torch for x86-64 Linux is a CUDA build of gigabytes. To use another, stop this and set" \
          "PELLUCID_TORCH to a CPU wheel, a folder of wheels, or an installed torch folder."
        pip_torch "torch $torch_version" "torch==$torch_version" ;;
    esac
  fi
  have=$(installed_torch)
  case "$have" in
    "$torch_version" | "$torch_version"+*) ;;
    *) fail "the virtual environment has torch '${have:-none}' but Pellucid needs $torch_version: correct PELLUCID_TORCH or delete .venv." ;;
  esac
}

pip_torch() {
  local text=$1
  shift
  step pip-torch "Installing $text" "$venv_python" -m pip install "$@" ||
    fail "pip could not install torch: check the network and the disk space, or set PELLUCID_TORCH to a wheel."
}

# PELLUCID_TORCH: an installed torch folder, a folder of wheels, a wheel, or a version.
install_chosen_torch() {
  local chosen=$1 have=$2
  if [ -e "$chosen/lib/libtorch_cpu.so" ]; then
    # An installed torch is used where it lies; so are its dependencies beside it.
    chosen=$(cd "$chosen/.." && pwd)
    local site
    site=$("$venv_python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    printf '%s\n' "$chosen" >"$site/pellucid_torch.pth"
  elif [ -d "$chosen" ]; then
    pip_torch "torch from $chosen" --find-links "$chosen" "torch==$torch_version"
  elif [ -f "$chosen" ]; then
    pip_torch "$chosen" "$chosen"
  elif [[ $chosen =~ ^[0-9][0-9a-z.+]*$ ]]; then
    [ "$have" = "$chosen" ] || pip_torch "torch $chosen" "torch==$chosen"
  else
    fail "PELLUCID_TORCH='$chosen' is no folder, no wheel and no version."
  fi
}

has_gpu() {
  command -v nvidia-smi >/dev/null && nvidia-smi >/dev/null 2>&1 &&
    "$venv_python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null
}

# ---- models

setup_model() {
  [ -e "$PELLUCID_MODELS/smollm2-135m-q4_1.gguf" ] && return
  step model "Fetching SmolLM2-135M-Instruct (98 MB) into $PELLUCID_MODELS" \
    "$venv_python" tools/fetch_model.py ||
    fail "the model could not be fetched: check the network and the disk space, then start ./dev again."
}

# What tests compare with: the same weights as Hugging Face folders.
setup_reference_model() {
  local folder missing=
  for folder in smollm2-135m smollm2-135m-f32; do
    [ -e "$PELLUCID_MODELS/$folder/model.safetensors" ] || missing=yes
  done
  [ -z "$missing" ] && return
  step reference-model "Making the reference folders of the same weights (0.8 GB) in $PELLUCID_MODELS" \
    "$venv_python" tools/make_reference_model.py ||
    fail "the reference folders could not be made: check the disk space, then start ./dev again."
}

setup_all() { setup_packages; setup_venv; setup_model; setup_reference_model; }

# ---- build

configure() {
  local preset=${PELLUCID_PRESET:-dev}
  local folder="$PELLUCID_ROOT/build/$preset" want stamp
  stamp="$folder/pellucid-configure.stamp"
  want="$(hash_of CMakePresets.json) $(readlink -f "$venv_python") $PELLUCID_ROOT $(installed_torch)"
  [ -e "$folder/build.ninja" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && return
  step "configure-$preset" "Configuring build/$preset" \
    cmake --fresh --preset "$preset" -DPython_EXECUTABLE="$venv_python" ||
    fail "CMake could not configure: the log above names what is missing."
  printf '%s' "$want" >"$stamp"
}

# Compilers at a time: a file with PyTorch headers takes up to 1.3 GB.
jobs() {
  local cores memory_kb by_memory
  cores=$(nproc)
  memory_kb=$(grep -m 1 MemAvailable /proc/meminfo 2>/dev/null | tr -dc 0-9)
  by_memory=$((${memory_kb:-4000000} / 1300000))
  echo "${PELLUCID_JOBS:-$((by_memory < 1 ? 1 : by_memory < cores ? by_memory : cores))}"
}

# build [TARGET...]: configures when needed and builds the targets (all by default) of preset $PELLUCID_PRESET or dev.
build() {
  local preset=${PELLUCID_PRESET:-dev} begin=$SECONDS target targets=()
  configure
  for target in "$@"; do targets+=(--target "$target"); done
  local quiet=(--quiet)
  [ -t 1 ] && [ -z "${CI:-}" ] && quiet=()
  printf -- '-- Building %s in build/%s (%s at a time; the first time takes minutes)\n' "${*:-everything}" "$preset" "$(jobs)" >&2
  cmake --build "$PELLUCID_ROOT/build/$preset" "${targets[@]}" -j "$(jobs)" -- "${quiet[@]}" ||
    fail "the build failed: the first error is above."
  printf -- '-- Built %s ... %d s\n' "${*:-everything}" $((SECONDS - begin)) >&2
}
