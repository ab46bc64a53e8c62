#!/bin/sh
# Starts and stops the databases of the peers that bench/sched compares with: a
# PostgreSQL for River and a Redis for Asynq, from Debian's packages, on loopback,
# durable at each commit. They are apart from any that run already.
#
#   peers.sh start    installs what is missing (root), starts both, prints how to use them
#   peers.sh stop     stops both and removes their data
set -eu

dir=${WHEELWORK_PEERS_DIR:-/var/tmp/wheelwork-peers} # on a disk: not a tmpfs
postgres_port=15432
redis_port=16379

# postgres refuses to run as root.
as_postgres() {
	if [ "$(id -u)" = 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi
}

pg_ctl() {
	for found in /usr/lib/postgresql/*/bin/pg_ctl; do :; done
	[ -x "$found" ] || { echo "peers: pg_ctl is in no /usr/lib/postgresql/*/bin" >&2; return 1; }
	as_postgres "$found" -D "$dir/postgres" "$@"
}

install_missing() {
	missing=
	command -v redis-server >/dev/null || missing="$missing redis-server"
	ls /usr/lib/postgresql/*/bin/pg_ctl >/dev/null 2>&1 || missing="$missing postgresql"
	[ -z "$missing" ] && return
	[ "$(id -u)" = 0 ] || { echo "peers: install$missing, or run this as root" >&2; return 1; }
	apt-get update -q >&2
	# RUNLEVEL=1: the packages start no instances of their own where nothing like systemd runs.
	# shellcheck disable=SC2086 # a list of words
	DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -qy --no-install-recommends $missing >&2
}

start() {
	install_missing
	mkdir -p "$dir"
	case $(stat -f -c %T "$dir") in
	tmpfs | ramfs) echo "peers: $dir is in memory: name a directory on a disk in WHEELWORK_PEERS_DIR" >&2; return 1 ;;
	esac
	if [ "$(id -u)" = 0 ]; then chown postgres "$dir"; fi
	if ! [ -f "$dir/postgres/PG_VERSION" ]; then
		pg_ctl initdb -o "-A trust -U postgres -E UTF8 --no-locale" >"$dir/initdb.log"
	fi
	if ! pg_ctl status >/dev/null; then
		pg_ctl -w -l "$dir/postgres.log" start -o "-h 127.0.0.1 -p $postgres_port -k $dir \
			-c fsync=on -c synchronous_commit=on -c full_page_writes=on -c max_connections=100" >/dev/null
	fi
	if ! redis-cli -p $redis_port ping >/dev/null 2>&1; then
		mkdir -p "$dir/redis"
		redis-server --bind 127.0.0.1 --port $redis_port --dir "$dir/redis" --daemonize yes --logfile "$dir/redis.log" \
			--pidfile "$dir/redis.pid" --appendonly yes --appendfsync always --save '' >/dev/null
	fi
	tries=0
	until redis-cli -p $redis_port ping >/dev/null 2>&1; do
		tries=$((tries + 1))
		[ $tries -lt 50 ] || { echo "peers: redis-server does not answer; see $dir/redis.log" >&2; return 1; }
		sleep 0.1
	done
	cat <<END
export WHEELWORK_BENCH_POSTGRES='postgres://postgres@127.0.0.1:$postgres_port/postgres?sslmode=disable'
export WHEELWORK_BENCH_REDIS=127.0.0.1:$redis_port
END
}

stop() {
	if [ -f "$dir/postgres/postmaster.pid" ]; then pg_ctl -m fast -w stop >/dev/null; fi
	if [ -f "$dir/redis.pid" ]; then redis-cli -p $redis_port shutdown nosave >/dev/null 2>&1 || true; fi
	rm -rf "$dir/postgres" "$dir/redis" "$dir"/*.log "$dir/redis.pid"
	rmdir "$dir" 2>/dev/null || true # another's files stay
}

case ${1-} in
start) start ;;
stop) stop ;;
*) echo "usage: peers.sh start|stop" >&2; exit 2 ;;
esac
