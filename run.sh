#!/usr/bin/env bash
# One door to the project: builds it, shows it, tests it. ./run.sh --help says how.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
readonly ROOT="$PWD"

readonly BUILD_PACKAGES=(g++ cmake ninja-build pkg-config ccache python3 libgrpc++-dev protobuf-compiler
  protobuf-compiler-grpc libprotobuf-dev libabsl-dev prometheus-cpp-dev libgtest-dev libgmock-dev
  libbenchmark-dev nlohmann-json3-dev libcpp-httplib-dev libssl-dev openssl)
# Prometheus itself and promtool: the tests let a real one scrape the broker, and check its rules. The shells:
# asked what they complete.
readonly TEST_PACKAGES=(prometheus zsh fish)
readonly CHECK_PACKAGES=(clang clang-tidy clang-format shellcheck libclang-rt-14-dev python3-venv chromium)
# Each fuzzer: its name, what it starts from, the longest input in bytes, and the runs of a test of it, some 10 s
# for each of two seeds.
readonly FUZZERS=("broker-edge build-fuzz/seeds 4096 1500" "workload stage_workers/pipeline/workloads 8192 6000"
  "safetensors tests/fuzz/corpus/safetensors 4096 200000")
readonly FUZZ_SEED=1
readonly TIDY_BUDGET_SECONDS=420  # past it no further file is started, and the rest is named

# The presets share most of what they compile: paths relative to the tree let them share the cache.
export CCACHE_BASEDIR="$ROOT" CCACHE_NOHASHDIR=true CCACHE_SLOPPINESS=pch_defines,time_macros
export CTEST_OUTPUT_ON_FAILURE=1

JOBS="$(nproc)"
PASSED=0
FAILED=0
LOGS="$ROOT/build/logs"
WRAPPER=()  # a program and its arguments that the next tests run under

usage() {
  cat <<TXT
Usage: ./run.sh COMMAND

  build                 optimised build of everything into ./build, programs in build/bin
  demo [--json FILE]    builds the programs, then runs the demo: its table on emulated
                        cards (demo --help lists what else it takes)
  test                  builds, then runs every test (labels unit, sim, model, e2e)
  test --full           the same; then the planner against an integer program (scipy from PyPI, into
                        ~/.cache/vram-broker), the dashboards against their generator, the broker's
                        page in a browser (Playwright from PyPI, beside it), bugs that are planted one
                        by one for the tests to find, style, format, shell and clang-tidy checks,
                        address, undefined behaviour and thread sanitizers over the unit, sim and
                        model tests, a build by clang, one without the CUDA toolkit, and every fuzzer for a
                        number of runs from a fixed seed and from a fresh one
  test --full-only      only what --full adds
  bench                 builds, then measures planning, latencies and copy rates against their
                        references
  dashboards            writes k8s/monitoring/dashboards/*.json anew (an SDK from PyPI, into
                        ~/.cache/vram-broker)
  fuzz [SECONDS]        builds the fuzzers with clang, then runs each for so long (default 60) on what
                        it has found so far, in build-fuzz/corpus
  lint                  style, format, shell and clang-tidy checks
  clean                 removes the build folders
  --help                this text

Missing Debian packages are installed first (as root, or through sudo); nothing is installed when all
are there. "test" needs Debian's prometheus as well, which starts a service of its own where systemd
runs (systemctl disable --now prometheus ends it: the tests start theirs). "test" ends with a line "N passed, N failed"; its exit status is 0 only if nothing failed
and something ran. Logs of the steps: build/logs.

One test alone:  ctest --test-dir build -R NAME --output-on-failure
TXT
}

die() { echo "run.sh: $*" >&2; exit 2; }
count() { PASSED=$((PASSED + $1)); FAILED=$((FAILED + $2)); }

# seconds_since NANOSECONDS -> "12.3"
seconds_since() {
  local ms=$((($(date +%s%N) - $1) / 1000000))
  printf '%d.%d' $((ms / 1000)) $((ms % 1000 / 100))
}

install_packages() {
  command -v dpkg-query >/dev/null || {
    echo "run.sh: not a Debian system, taking the tools as they are; needed: $*" >&2
    return 0
  }
  local missing=() package
  for package in "$@"; do
    [[ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" == installed* ]] ||
      missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  local as_root=()
  if (($(id -u) != 0)); then
    command -v sudo >/dev/null ||
      die "missing packages, and neither root nor sudo is at hand: apt-get install ${missing[*]}"
    as_root=(sudo)
    [[ -t 0 ]] || as_root+=(-n)
  fi
  step "install ${missing[*]}" "${as_root[@]}" sh -c '
    export DEBIAN_FRONTEND=noninteractive
    apt-get update && apt-get install -y --no-install-recommends "$@"' sh "${missing[@]}" </dev/null ||
    die "could not install: ${missing[*]}"
}

# Shows the last progress line of a log now and then, until it is killed.
progress() {
  local log="$1" pause=20 line last=""
  [[ -t 1 ]] && pause=1
  while sleep "$pause"; do
    line="$(tail -c 4000 "$log" 2>/dev/null | tr '\r' '\n' | grep -aE '^ *(\[ *[0-9]+/[0-9]+\]|[0-9]+/[0-9]+ Test|.*: checked)' |
      tail -n 1 | cut -c 1-100)" || true
    [[ -n "$line" && "$line" != "$last" ]] || continue
    last="$line"
    if [[ -t 1 ]]; then printf '\r\033[K     %s' "$line"; else printf '     %s\n' "$line"; fi
  done
}

# step NAME COMMAND...: runs it with its output in a log; says how long it took; on failure shows the
# end of the log. Returns the command's status.
step() {
  local name="$1" start log rc=0 watcher
  shift
  mkdir -p "$LOGS"
  log="$LOGS/$(printf '%s' "$name" | tr -cs 'A-Za-z0-9' '-' | cut -c 1-60).log"
  start="$(date +%s%N)"
  printf '==> %s\n' "$name"
  : >"$log"
  progress "$log" &
  watcher=$!
  "$@" >"$log" 2>&1 || rc=$?
  kill "$watcher" 2>/dev/null || true
  wait "$watcher" 2>/dev/null || true
  [[ -t 1 ]] && printf '\r\033[K'
  if ((rc == 0)); then
    printf '    ok, %s s\n' "$(seconds_since "$start")"
  else
    printf '    FAILED (status %d), %s s; the end of %s:\n' "$rc" "$(seconds_since "$start")" "${log#"$ROOT"/}"
    grep -avE '^\[[0-9]+/[0-9]+\] (Building|Linking|Running)|Test +#[0-9]+: .* Passed |^ +Start +[0-9]+: ' "$log" |
      cut -c 1-300 | tail -n 60 | sed 's/^/    | /'
  fi
  return "$rc"
}

# check NAME COMMAND...: a step that counts as one test.
check() {
  if step "$@"; then count 1 0; else count 0 1; return 1; fi
}

# configure_and_build PRESET [TARGET...]
configure_and_build() {
  local preset="$1" targets=()
  shift
  (($#)) && targets=(--target "$@")
  cmake --preset "$preset" && NINJA_STATUS='[%f/%t] ' cmake --build --preset "$preset" -j "$JOBS" "${targets[@]}"
}

build_folder() { if [[ "$1" == release ]]; then echo build; else echo "build-$1"; fi; }

# Counts a JUnit file of ctest into PASSED and FAILED, names what failed and how to run it again.
# A test that was skipped or could not run counts as failed.
count_junit() {
  local junit="$1" folder="$2" result
  result="$(python3 - "$junit" "$folder" <<'PY'
import re, sys, xml.etree.ElementTree as tree
junit, folder = sys.argv[1:]
try:
    cases = list(tree.parse(junit).getroot().iter("testcase"))
except (OSError, tree.ParseError) as error:
    print(f"    no result of ctest in {junit}: {error}", file=sys.stderr)
    cases = []
bad = [case for case in cases if case.get("status") != "run"]
for case in bad:
    print(f"    {case.get('status')}: {case.get('name')}\n        again: ctest --test-dir {folder} "
          f"-R '^{re.escape(case.get('name'))}$' --output-on-failure", file=sys.stderr)
print(len(cases) - len(bad), len(bad) if cases else 1)
PY
)"
  # shellcheck disable=SC2086
  count $result
  echo "    ${result/ / passed, } failed"
}

# run_tests PRESET [ctest arguments...]: through the preset's environment and filters.
run_tests() {
  local preset="$1" folder junit
  shift
  folder="$(build_folder "$preset")"
  junit="$ROOT/$folder/junit.xml"
  rm -f "$junit"
  step "$preset: tests" "${WRAPPER[@]}" ctest --preset "$preset" -j "$JOBS" --no-tests=error \
    --output-junit "$junit" "$@" || true
  count_junit "$junit" "$folder"
}

# For programs under a sanitizer. With much randomness of addresses the sanitizers of these compilers
# find their shadow occupied now and then: it is switched off where that is allowed.
wrap_for_sanitizers() {
  if [[ "$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 0)" -gt 28 ]] && setarch -R true 2>/dev/null; then
    WRAPPER=(setarch -R)
  fi
}

# Tests under a sanitizer; the style rules do not change under one.
sanitize() {
  local preset="$1"
  wrap_for_sanitizers
  if step "$preset: build" "${WRAPPER[@]}" "$ROOT/run.sh" configure-and-build "$preset"; then
    run_tests "$preset" -E '^style'
  else
    count 0 1
  fi
  WRAPPER=()
}

build_fuzzers() { configure_and_build fuzz && build-fuzz/bin/fuzz-seeds build-fuzz/seeds; }

# fuzz_one TITLE NAME INPUTS BYTES CORPUS FLAG...: counts as one test; CORPUS gets the inputs that reached
# something new. What ends the fuzzer is kept, and the line that plays it again is printed.
fuzz_one() {
  local title="$1" name="$2" inputs="$3" bytes="$4" corpus="$5" found
  shift 5
  mkdir -p build-fuzz/found "$corpus"
  found="$(mktemp -d "build-fuzz/found/$name-XXXXXX")"
  if ! check "fuzz: $title" "${WRAPPER[@]}" "build-fuzz/bin/$name-fuzz" "-max_len=$bytes" -timeout=20 \
    "-artifact_prefix=$found/" -print_final_stats=1 "$@" "$corpus" "$inputs"; then
    find "$found" -type f -printf "        again: build-fuzz/bin/$name-fuzz %p\n"
  fi
  rmdir "$found" 2>/dev/null || true
}

# Every fuzzer for its runs: from the fixed seed, which does the same each time, and from a fresh one.
fuzz_bounded() {
  local entry name inputs bytes runs seed corpus
  for entry in "${FUZZERS[@]}"; do
    read -r name inputs bytes runs <<<"$entry"
    for seed in "$FUZZ_SEED" "$((RANDOM * 32768 + RANDOM + 2))"; do
      corpus="$(mktemp -d)"
      fuzz_one "$name, $runs runs from seed $seed" "$name" "$inputs" "$bytes" "$corpus" "-seed=$seed" "-runs=$runs"
      rm -rf "$corpus"
    done
  done
}

fuzz_for() {
  local seconds="$1" entry name inputs bytes runs
  for entry in "${FUZZERS[@]}"; do
    read -r name inputs bytes runs <<<"$entry"
    fuzz_one "$name for $seconds s" "$name" "$inputs" "$bytes" "build-fuzz/corpus/$name" "-max_total_time=$seconds"
  done
}

# fuzz COMMAND...: builds the fuzzers, then runs them by it.
fuzz() {
  wrap_for_sanitizers
  if step "fuzz: build" "${WRAPPER[@]}" "$ROOT/run.sh" build-fuzzers; then "$@"; else count 0 1; fi
  WRAPPER=()
}

own_sources() {
  git -c safe.directory="$ROOT" ls-files -co --exclude-standard -- "$@" | while read -r file; do
    [[ -e "$file" ]] && printf '%s\n' "$file"
  done
}

check_format() { own_sources '*.cc' '*.h' '*.cu' | xargs -r clang-format --dry-run -Werror; }
check_shell() { own_sources '*.sh' .ci/run | xargs -r shellcheck -s bash; }

# What clang-tidy reads: what the last commit or the working tree changed, then the pure logic.
tidy_files() {
  local git=(git -c "safe.directory=$ROOT")
  {
    "${git[@]}" diff --name-only --diff-filter=d HEAD -- '*.cc' 2>/dev/null
    "${git[@]}" diff --name-only --diff-filter=d HEAD~1 HEAD -- '*.cc' 2>/dev/null
    own_sources 'broker/core/*.cc' 'client/cpp/*.cc'
  } | awk '!seen[$0]++' | while read -r file; do
    grep -qF "$ROOT/$file\"" build/compile_commands.json && printf '%s\n' "$file"
  done
}

# tidy_one DEADLINE FILE: 0 when clean or out of time, said apart.
tidy_one() {
  local out
  if (($(date +%s) >= $1)); then
    echo "$2: not checked, the time for clang-tidy is used up"
  elif out="$(clang-tidy -p build --quiet "$2" 2>/dev/null)"; then
    echo "$2: checked"
  else
    printf '%s\n%s: clang-tidy FAILED\n' "$out" "$2"
    return 1
  fi
}

check_tidy() {
  local deadline=$(($(date +%s) + TIDY_BUDGET_SECONDS)) files
  files="$(tidy_files)"
  [[ -n "$files" ]] || { echo "no file to check: is build/compile_commands.json of this tree?"; return 1; }
  xargs -r -P "$JOBS" -I{} "$ROOT/run.sh" tidy-one "$deadline" {} <<<"$files"
}

# The planner against an integer program, which needs scipy: installed from PyPI into a folder of its
# own, once for all checkouts.
compare_with_optimum() {
  local folder="${XDG_CACHE_HOME:-${HOME:?}/.cache}/vram-broker"
  mkdir -p "$folder"
  (
    flock 9
    "$folder/venv/bin/python" -c 'import scipy.optimize' 2>/dev/null && exit 0
    python3 -m venv "$folder/venv" &&
      "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check 'scipy>=1.9,<2'
  ) 9>"$folder/venv.lock" || return 1
  "$folder/venv/bin/python" tests/referee/compare.py
}

# The dashboards as their generator writes them, byte for byte. Its SDK comes from PyPI into a folder of its own.
check_dashboards() {
  local folder="${XDG_CACHE_HOME:-${HOME:?}/.cache}/vram-broker" tool=k8s/monitoring/dashboards
  mkdir -p "$folder"
  (
    flock 9
    cmp -s "$tool/requirements.txt" "$folder/dashboards/requirements.txt" && exit 0
    python3 -m venv --clear "$folder/dashboards" &&
      "$folder/dashboards/bin/python" -m pip install --quiet --disable-pip-version-check -r "$tool/requirements.txt" &&
      cp "$tool/requirements.txt" "$folder/dashboards/requirements.txt"
  ) 9>"$folder/dashboards.lock" || return 1
  PYTHONDONTWRITEBYTECODE=1 "$folder/dashboards/bin/python" "$tool/generate.py" "${1:---check}"
}

# The broker's page in Debian's chromium, driven by Playwright: from PyPI, in a folder of its own as well.
check_page() {
  local folder="${XDG_CACHE_HOME:-${HOME:?}/.cache}/vram-broker" wanted=1.49.1
  mkdir -p "$folder"
  (
    flock 9
    [[ "$("$folder/page-venv/bin/python" -m pip show playwright 2>/dev/null | sed -n 's/^Version: //p')" == "$wanted" ]] &&
      exit 0
    python3 -m venv "$folder/page-venv" &&
      "$folder/page-venv/bin/python" -m pip install --quiet --disable-pip-version-check "playwright==$wanted"
  ) 9>"$folder/page-venv.lock" || return 1
  "$folder/page-venv/bin/python" tests/page/browser_test.py build/bin "$@"
}

build_release() {
  install_packages "${BUILD_PACKAGES[@]}"
  step "release: build" configure_and_build release "$@"
}

lint() {
  check "style" python3 tests/style/check_style.py || true
  check "format" check_format || true
  check "shell scripts" check_shell || true
  check "clang-tidy" check_tidy || true
  grep -h 'not checked' "$LOGS/clang-tidy.log" || true
}

test_fast() {
  install_packages "${TEST_PACKAGES[@]}"
  if build_release; then run_tests release; else count 0 1; fi
}

test_full_only() {
  install_packages "${CHECK_PACKAGES[@]}"
  build_release || { count 0 1; return; }
  if check "planner against an integer program" compare_with_optimum; then
    sed 's/^/    /' "$LOGS/planner-against-an-integer-program.log"
  fi
  check "dashboards are as generated" check_dashboards || true
  check "page in a browser" check_page || true
  check "planted bugs" python3 tests/planted/run.py --jobs "$JOBS" || true
  sed 's/^/    /' "$LOGS/planted-bugs.log"
  lint
  sanitize asan
  sanitize tsan
  check "clang: build" configure_and_build clang || true
  if grep -q '^CUDAToolkit_NVCC_EXECUTABLE:.*=/' build/CMakeCache.txt; then
    check "no-cuda: build" configure_and_build no-cuda || true
  else
    echo "==> no-cuda: the release build is one, no CUDA toolkit was found"
  fi
  fuzz fuzz_bounded
}

# The last line of "test" and "lint", alone. VRAM_COUNTS_FILE gets the figures instead where a caller
# adds several runs up.
close() {
  if [[ -n "${VRAM_COUNTS_FILE:-}" ]]; then
    echo "$PASSED $FAILED" >>"$VRAM_COUNTS_FILE"
  else
    echo "$PASSED passed, $FAILED failed"
  fi
  ((FAILED == 0 && PASSED > 0))
}

main() {
  local command="${1:---help}"
  (($#)) && shift
  case "$command" in
    build)
      build_release
      ;;
    demo)
      build_release programs
      exec build/bin/vram-pipeline demo "$@"
      ;;
    bench)
      build_release
      exec build/bin/vram-bench "$@"
      ;;
    test)
      case "${1:-}" in
        "") test_fast ;;
        --full) test_fast; test_full_only ;;
        --full-only) test_full_only ;;
        *) die "test takes --full, --full-only or nothing, not '$1'" ;;
      esac
      close
      ;;
    fuzz)
      [[ "${1:-60}" =~ ^[1-9][0-9]{0,6}$ ]] || die "fuzz takes a number of seconds from 1 on, not '$1'"
      install_packages "${BUILD_PACKAGES[@]}" "${CHECK_PACKAGES[@]}"
      fuzz fuzz_for "${1:-60}"
      close
      ;;
    lint)
      install_packages "${CHECK_PACKAGES[@]}"
      build_release
      lint
      close
      ;;
    dashboards)
      install_packages python3 python3-venv
      check_dashboards --write
      ;;
    clean)
      rm -rf build build-no-cuda build-clang build-asan build-tsan build-fuzz
      ;;
    configure-and-build) configure_and_build "$@" ;;  # for a step that runs under another program
    build-fuzzers) build_fuzzers ;;
    tidy-one) tidy_one "$@" ;;
    -h | --help | help)
      usage
      ;;
    *)
      usage >&2
      die "unknown command '$command'"
      ;;
  esac
}

main "$@"
