#!/usr/bin/env bash
# Runs a shell's line on a machine of a cluster that is running (`make cluster ARGS=--keep`), as root; without a line: which there are.
#
#   tests/cluster/on.sh SOCKET [MACHINE LINE...]      MACHINE: a role (etcd-0, controller, …), an instance's id or its address
set -euo pipefail
socket=$1
shift
exec python3 -c '
import socket, sys
one = socket.socket(socket.AF_UNIX)
one.connect(sys.argv[1])
one.sendall((" ".join(sys.argv[2:]) or "?").encode() + b"\n")
while some := one.recv(65536):
    sys.stdout.write(some.decode(errors="replace"))
' "$socket" "$@"
