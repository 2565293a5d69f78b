#!/bin/sh
# A page of docs/ is made by a program from a table in the source; this fails when one was changed
# without the other.
# usage: made_page.sh PROGRAM PAGE
"$1" markdown | diff -u "$2" - || { echo "run: build/lib/$(basename "$1") markdown > docs/$(basename "$2")"; exit 1; }
