#!/bin/sh
# A page is made by a program from a table in the source; this fails when one was changed without
# the other.
# usage: made_page.sh PROGRAM PAGE
"$1" markdown | diff -u "$2" - || { echo "run: $1 markdown > $2"; exit 1; }
