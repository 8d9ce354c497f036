#!/bin/sh
# The Python environment from the lock: `venv.sh PYTHON FOLDER`. Several at a time are fine: one works, the others wait for it.
set -eu
python=$1 folder=$2
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "TDCS needs Python 3.11 or newer; name one with make PYTHON=/path/to/python3")'
"$python" -c 'import ensurepip' 2>/dev/null || {
  echo "installing the Debian package python3-venv"
  apt-get update -qq -o Acquire::Retries=5 && apt-get install -y -qq -o Acquire::Retries=5 python3-venv
}
mkdir -p .local
exec 9>.local/venv.lock
flock 9
stamp=$folder/.ready
if [ -e "$stamp" ] && [ -z "$(find locks/development.txt pyproject.toml labs/pyproject.toml training/pyproject.toml -newer "$stamp")" ]; then
  exit 0 # somebody else made it while this one waited
fi
echo "python environment in $folder, from locks/development.txt: about a minute"
[ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
"$folder/bin/python" -m pip install -q --retries 10 --disable-pip-version-check --require-hashes -r locks/development.txt
"$folder/bin/python" -m pip install -q --retries 10 --disable-pip-version-check --no-deps -e . -e ./labs -e ./training
touch "$stamp"
