#!/bin/sh
# Installs the Python tools that the tests need (moto, cfn-lint, the SAM translator, Kubernetes' schemas), pinned, into .tools/, once.
#
#   tests/scripts/tools.sh          installs if need be; prints the path of the interpreter to use
#
# Quick when done; safe when run twice at once; a broken or interrupted install is begun afresh.
# Needs python3 (3.10 or newer) and one of: its venv module with ensurepip (Debian: python3-venv), pip, virtualenv.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
lock=$root/tests/tools/requirements.txt
digest=$(sha256sum "$lock" | cut -c1-12)
home=$root/.tools/python-$digest
current=$root/.tools/python

finish() {
    # A fixed name for whoever wants the newest; replaced in one step.
    ln -sfn "python-$digest" "$current.$$" && mv -Tf "$current.$$" "$current"
    echo "$home/bin/python3"
}

mkdir -p "$root/.tools"
if [ -e "$home/.complete" ]; then finish; exit 0; fi

exec 9>"$root/.tools/lock"
flock 9
if [ -e "$home/.complete" ]; then finish; exit 0; fi

rm -rf "$home"
echo "installing Python tools into ${home#"$root"/} (once, under a minute)" >&2
# A pip of ours inside the environment is best; where Debian has split ensurepip away, pip or virtualenv of the
# system installs into it from outside.
if python3 -c 'import ensurepip' 2>/dev/null && python3 -m venv "$home" >&2; then
    "$home/bin/python3" -m pip install --quiet --requirement "$lock" >&2
elif python3 -m pip --version >/dev/null 2>&1; then
    rm -rf "$home"
    python3 -m venv --without-pip "$home" >&2
    site=$("$home/bin/python3" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    python3 -m pip install --quiet --target "$site" --requirement "$lock" >&2
    ln -s "$site/bin/shellcheck" "$home/bin/shellcheck"
elif python3 -m virtualenv --version >/dev/null 2>&1; then
    rm -rf "$home"
    python3 -m virtualenv --quiet "$home" >&2
    "$home/bin/python3" -m pip install --quiet --requirement "$lock" >&2
else
    echo "error: python3 here has neither ensurepip nor pip nor virtualenv" >&2
    echo "help: apt-get install python3-venv" >&2
    exit 1
fi
"$home/bin/python3" -c 'import moto, boto3, cfnlint, samtranslator, kubernetes_validate' >&2
touch "$home/.complete"
finish
