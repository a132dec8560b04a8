#!/usr/bin/env bash
# Makes sure the database servers that the tests and the demo start for
# themselves are installed. Changes nothing when they are. On Debian and Ubuntu,
# as root, installs what is missing without starting any service; elsewhere says
# what to do and exits with 1.
set -euo pipefail

# runs NAME: whether a program is in PATH, or at the path given, and may be run.
# `command -v` alone also finds files that may not.
runs() {
	local path
	path=$(command -v "$1" 2>/dev/null) && [ -x "$path" ]
}

# have VARIABLE NAME DIRECTORY...: whether a program is where the variable says,
# in PATH, or in one of the directories the Go code looks in too.
have() {
	local set=${!1:-} name=$2 dir
	shift 2
	if [ -n "$set" ]; then
		runs "$set"
		return
	fi
	runs "$name" && return
	for dir in "$@"; do
		[ -x "$dir/$name" ] && return
	done
	return 1
}

have_mariadb() {
	have RUNNEL_MARIADBD mariadbd /usr/sbin /usr/libexec /usr/local/sbin /usr/local/bin /opt/homebrew/bin &&
		have RUNNEL_MARIADB_INSTALL_DB mariadb-install-db /usr/local/bin /opt/homebrew/bin &&
		have RUNNEL_MARIADB_DUMP mariadb-dump /usr/local/bin /opt/homebrew/bin
}

have_postgres() {
	if [ -n "${RUNNEL_PG_BIN:-}" ]; then
		[ -x "$RUNNEL_PG_BIN/initdb" ] && [ -x "$RUNNEL_PG_BIN/postgres" ]
		return
	fi
	shopt -s nullglob
	local dirs=(/usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql*/bin /usr/local/pgsql/bin)
	shopt -u nullglob
	have NO_VARIABLE postgres "${dirs[@]}" && have NO_VARIABLE initdb "${dirs[@]}"
}

missing() {
	have_mariadb || echo mariadb-server
	have_postgres || echo postgresql
}

by_hand() {
	cat >&2 <<-TXT
		install-deps: missing: $*. Install them with your package manager, for example
		  Debian, Ubuntu:  sudo apt-get install -y $*
		  Fedora:          sudo dnf install mariadb-server postgresql-server
		  macOS:           brew install mariadb postgresql
		or point these variables at the programs:
		  RUNNEL_MARIADBD RUNNEL_MARIADB_INSTALL_DB RUNNEL_MARIADB_DUMP (programs), RUNNEL_PG_BIN (directory)
	TXT
	exit 1
}

# A variable that points nowhere is not mended by a package.
for name in RUNNEL_MARIADBD RUNNEL_MARIADB_INSTALL_DB RUNNEL_MARIADB_DUMP; do
	if [ -n "${!name:-}" ] && ! runs "${!name}"; then
		echo "install-deps: $name=${!name} is no program that can be run; correct or unset it" >&2
		exit 1
	fi
done
if [ -n "${RUNNEL_PG_BIN:-}" ] && ! have_postgres; then
	echo "install-deps: RUNNEL_PG_BIN=$RUNNEL_PG_BIN does not hold initdb and postgres; correct or unset it" >&2
	exit 1
fi

mapfile -t packages < <(missing)
if [ ${#packages[@]} -eq 0 ]; then
	exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
	by_hand "${packages[@]}"
fi

# Debian starts a service when its package arrives unless this program objects.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	trap 'rm -f "$policy"' EXIT
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
fi
log=$(mktemp)
export DEBIAN_FRONTEND=noninteractive
wait=(-o DPkg::Lock::Timeout=300) # seconds, when another installation is under way
if ! { apt-get update -q && apt-get install -q -y "${wait[@]}" --no-install-recommends "${packages[@]}"; } >"$log" 2>&1; then
	tail -n 30 "$log" >&2
	echo "install-deps: apt-get could not install ${packages[*]}; the whole log is in $log" >&2
	exit 1
fi
rm -f "$log"
mapfile -t still < <(missing)
if [ ${#still[@]} -ne 0 ]; then
	by_hand "${still[@]}"
fi
echo "install-deps: installed ${packages[*]}; no service was started"
