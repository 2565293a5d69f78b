#!/bin/sh
# docs/settings.md is made from lib/config/settings.def; this fails when one was changed without the other.
# usage: settings_page.sh config-doc docs/settings.md
"$1" markdown | diff -u "$2" - || { echo "run: build/lib/config-doc markdown > docs/settings.md"; exit 1; }
