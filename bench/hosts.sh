#!/bin/sh
# hosts.sh N GBIT COMMAND... - runs mpirun -np N COMMAND on N simulated machines, one rank each, on a network of GBIT Gbit/s.
# The machines are namespaces with their own name and address. Each has a virtual cable of that speed in both directions to a
# switch (0: no limit). Needs Open MPI, iproute2, util-linux and user namespaces. MPIRUN may contain more options of mpirun.
set -eu
if [ "${HOSTS_INSIDE:-}" != yes ]; then
    [ $# -ge 3 ] || {
        sed -n '2,4s/^# //p' "$0" >&2
        exit 2
    }
    HOSTS_INSIDE=yes exec unshare -rnmup --fork --kill-child --mount-proc sh "$0" "$@"
fi
n=$1 gbit=$2
shift 2
unset HOSTS_INSIDE
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The burst is the data of a millisecond, at least 65536 bytes. With a smaller burst the kernel's timer would limit the speed.
limit() { # command before tc, interface
    [ "$gbit" = 0 ] ||
        ${1:-} tc qdisc add dev "$2" root tbf rate "${gbit}gbit" latency 100ms \
            burst "$(awk -v g="$gbit" 'BEGIN { b = g * 1e9 / 8 * 0.001; printf "%d", b < 65536 ? 65536 : b }')"
}

echo "127.0.0.1 localhost" >"$scratch/etc_hosts"
ip link set lo up
ip link add switch type bridge
ip link set switch up
for i in $(seq 0 $((n - 1))); do
    unshare -nu sh -c "hostname host$i && echo there && exec sleep 3600" >"$scratch/host$i" &
    pid=$!
    until [ -s "$scratch/host$i" ]; do sleep 0.05; done
    ip link add port$i type veth peer name cable netns $pid
    ip link set port$i master switch up
    limit "" port$i
    in_host="nsenter -t $pid -n -u"
    $in_host ip link set lo up
    $in_host ip addr add 10.9.0.$((i + 1))/24 dev cable
    $in_host ip link set cable up
    limit "$in_host" cable
    echo "10.9.0.$((i + 1)) host$i" >>"$scratch/etc_hosts"
    echo "host$i slots=1" >>"$scratch/hosts"
    printf '%s) exec %s sh -c "$*" ;;\n' "host$i" "$in_host" >>"$scratch/ways"
    [ $i != 0 ] || first=$in_host
done
mount --bind "$scratch/etc_hosts" /etc/hosts
{
    printf '#!/bin/sh\nhost=$1\nshift\ncase $host in\n'
    cat "$scratch/ways"
    echo esac
} >"$scratch/instead_of_ssh"
chmod +x "$scratch/instead_of_ssh"

# shellcheck disable=SC2086  # several words
$first mpirun --allow-run-as-root --bind-to none --map-by node --hostfile "$scratch/hosts" -np "$n" \
    --mca plm_rsh_agent "$scratch/instead_of_ssh" --mca btl self,tcp \
    --mca btl_tcp_if_include 10.9.0.0/24 --mca oob_tcp_if_include 10.9.0.0/24 ${MPIRUN:-} "$@"
