#!/usr/bin/env bash
# Says which glibc a binary needs, by the versions of the symbols that it links to.
#
#   glibc_ceiling.sh BINARY [CEILING]
#
# Prints the newest version; exit status 1 if it is newer than CEILING (2.34, that of Amazon Linux 2023). Needs objdump.
set -euo pipefail
binary=$1 ceiling=${2:-2.34}

# Undefined symbols of the dynamic table carry the version that they need: (GLIBC_2.34) pthread_create. Weak ones are
# counted as well: the loader refuses a library that lacks the version, whoever wants it.
newest=$(objdump -T "$binary" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1 | cut -d_ -f2)
if [ -z "$newest" ]; then
    echo "$binary: links to no glibc"
    exit 0
fi
echo "$binary: glibc $newest"
if [ "$(printf '%s\n%s\n' "$newest" "$ceiling" | sort -V | tail -n 1)" != "$ceiling" ]; then
    echo "$binary: needs glibc $newest, and Lambda has $ceiling; build it with infra/package.sh (zig)" >&2
    objdump -T "$binary" | grep "GLIBC_$newest" >&2
    exit 1
fi
