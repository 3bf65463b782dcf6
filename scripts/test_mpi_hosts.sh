#!/bin/sh
# test_mpi_hosts.sh BUILD - tests mpirun over two machines, simulated by namespaces of this machine: each has its own host name
# and address, and a virtual cable joins them. Instead of ssh, mpirun gets a script that enters the other namespace.
set -eu
if [ $# = 1 ]; then
    build=$(cd "$1" && pwd)
    if ! unshare -rnmup --fork --mount-proc true 2>/dev/null; then
        echo "two machines: skipped, because this system has no user namespaces"
        exit 0
    fi
    exec unshare -rnmup --fork --kill-child --mount-proc sh "$0" "$build" inside
fi
build=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

hostname alpha
unshare -nu sh -c 'hostname beta && echo there && exec sleep 600' >"$scratch/beta" &
beta=$!
until [ -s "$scratch/beta" ]; do sleep 0.1; done
in_beta="nsenter -t $beta -n -u"
ip link add cable type veth peer name beta_end
ip link set beta_end netns $beta
ip addr add 10.9.0.1/24 dev cable
$in_beta ip addr add 10.9.0.2/24 dev beta_end
for link in lo cable; do ip link set $link up; done
for link in lo beta_end; do $in_beta ip link set $link up; done

printf '10.9.0.1 alpha\n10.9.0.2 beta\n127.0.0.1 localhost\n' >"$scratch/etc_hosts"
mount --bind "$scratch/etc_hosts" /etc/hosts
printf 'alpha slots=2\nbeta slots=2\n' >"$scratch/hosts"
printf '#!/bin/sh\nshift\nexec %s sh -c "$*"\n' "$in_beta" >"$scratch/instead_of_ssh"
chmod +x "$scratch/instead_of_ssh"

fail() {
    echo "test_mpi_hosts: $*" >&2
    cat "$scratch/out" "$scratch/err" >&2
    exit 1
}

run() { # arguments of mpirun
    timeout 60 mpirun --allow-run-as-root --bind-to none --hostfile "$scratch/hosts" \
        --mca plm_rsh_agent "$scratch/instead_of_ssh" \
        --mca btl_tcp_if_include 10.9.0.0/24 --mca oob_tcp_if_include 10.9.0.0/24 \
        "$@" >"$scratch/out" 2>"$scratch/err" && status=0 || status=$?
    [ $status != 124 ] || fail "mpirun $* hangs"
}

run -np 4 "$build/tests/test_mpi" "$build/dsmoe_mpi.so" cases 500000
[ $status = 0 ] || fail "ranks on two machines fail with $status"
run -np 3 --map-by node "$build/tests/test_mpi" "$build/tests/dsmoe_mpi_pieces.so" cases 30000
[ $status = 0 ] || fail "ranks on two machines fail with $status"
run -np 4 "$build/tests/test_ranks" agreed
grep -q "^dsmoe test: rank 3 on beta: the disk is full$" "$scratch/err" || fail "no message names beta"

# A machine that disappears: mpirun checks every other second whether it is there.
(sleep 3 && ip link set cable down) &
began=$(date +%s)
run -np 4 --mca oob_tcp_keepalive_time 5 --mca oob_tcp_keepalive_intvl 2 --mca oob_tcp_keepalive_probes 3 \
    "$build/tests/test_mpi" "$build/dsmoe_mpi.so" work
[ $status != 0 ] || fail "a lost machine was not noticed"
[ $(($(date +%s) - began)) -lt 30 ] || fail "a lost machine was noticed too late"
echo "ranks on two machines pass, and a machine that is lost ends the job"
