#!/usr/bin/env bash
# install_prerequisites.sh [--tests]: on Debian (12 or later) and Ubuntu (24.04 or later), installs what the measuring
# programs need to be built, and with --tests what the tests need, too. What is there already, from wherever, is left
# alone, so that a machine that has everything needs no network. A CUDA toolkit is used if there is one, not installed.
set -euo pipefail

tests=no
case "${1:-}" in
  "") ;;
  --tests) tests=yes ;;
  *) echo "usage: $0 [--tests]" >&2; exit 2 ;;
esac

have_command() { command -v "$1" >/dev/null 2>&1; }
# Whether the compiler finds one of these headers.
have_header() {
  local header
  for header in "$@"; do
    if echo "#include <$header>" | c++ -std=c++20 -x c++ -E - >/dev/null 2>&1; then return 0; fi
  done
  return 1
}
have_cmake() {
  have_command cmake || return 1
  local version
  version=$(cmake --version | sed -n 's/^cmake version \([0-9]*\.[0-9]*\).*/\1/p')
  [ "$(printf '%s\n' 3.25 "$version" | sort -V | head -n 1)" = 3.25 ]
}

required=()
optional=()  # without these, the tests that use them are skipped and say so
have_command c++ || required+=(g++)
have_cmake || required+=(cmake)
have_command ninja || required+=(ninja-build)
have_header CLI/CLI.hpp || required+=(libcli11-dev)
have_header nlohmann/json.hpp || required+=(nlohmann-json3-dev)
have_header benchmark/benchmark.h || required+=(libbenchmark-dev)
if [ "$tests" = yes ]; then
  have_header catch2/catch_test_macros.hpp catch2/catch.hpp || required+=(catch2)
  have_command python3 || required+=(python3)
  have_command clang++ || optional+=(clang)
  have_command spin || optional+=(spin)
fi
if [ ${#required[@]} -eq 0 ] && [ ${#optional[@]} -eq 0 ]; then exit 0; fi

if ! have_command apt-get; then
  echo "missing, and there is no apt-get to install it: ${required[*]:-} ${optional[*]:-}" >&2
  [ ${#required[@]} -eq 0 ]
  exit
fi
root=()
if [ "$(id -u)" -ne 0 ]; then root=(sudo); fi
apt() { "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120 "$@"; }

echo "installing: ${required[*]:-} ${optional[*]:-}"
apt update || echo "apt-get update failed; trying with the package lists that are here" >&2
if [ ${#required[@]} -gt 0 ]; then apt install -y --no-install-recommends "${required[@]}"; fi
for package in ${optional[@]+"${optional[@]}"}; do
  apt install -y --no-install-recommends "$package" || echo "no $package: the tests that use it are skipped" >&2
done
if ! have_cmake; then
  echo "CMake 3.25 or later is needed; this system's package is older (Debian 12, Ubuntu 24.04 or later have it)" >&2
  exit 1
fi
