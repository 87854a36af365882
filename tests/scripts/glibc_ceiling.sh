#!/usr/bin/env bash
# Says which glibc a binary needs, by the versions of the symbols that it links to, and that it needs no other library.
#
#   glibc_ceiling.sh BINARY [CEILING]
#
# Prints the newest version; exit status 1 if it is newer than CEILING (2.34, that of Amazon Linux 2023), or if the image would have to
# bring anything but glibc's own libraries and GCC's unwinder, which every distribution has beside it. Needs objdump.
set -euo pipefail
binary=$1 ceiling=${2:-2.34}

needed=$(objdump -p "$binary" | awk '$1 == "NEEDED" { print $2 }')
for library in $needed; do
    case $library in
        libc.so.6 | libm.so.6 | libpthread.so.0 | libdl.so.2 | librt.so.1 | ld-linux-*.so.* | libgcc_s.so.1) ;;
        *) echo "$binary: needs $library, which images do not have" >&2; exit 1 ;;
    esac
done

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
