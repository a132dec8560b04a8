#!/usr/bin/env bash
# Runs every fuzz target of the module for a while each: fuzz.sh DURATION.
# Inputs that break something are left in testdata/fuzz of the package.
set -euo pipefail

duration=${1:?usage: fuzz.sh DURATION, for example fuzz.sh 30s}
count=0
while IFS=: read -r file target; do
	echo "== $(dirname "$file") $target"
	go test -run '^$' -fuzz "^$target\$" -fuzztime "$duration" "./$(dirname "$file")"
	count=$((count + 1))
done < <(git ls-files --cached --others --exclude-standard '*_test.go' |
	xargs -r grep -HoE '^func Fuzz[A-Za-z0-9_]*' | sed 's/:func /:/')
if [ "$count" -eq 0 ]; then
	echo "fuzz: no fuzz target found" >&2
	exit 1
fi
echo "fuzz: $count targets, $duration each, nothing found"
