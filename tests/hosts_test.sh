#!/usr/bin/env bash
# Two network namespaces, joined by a bridge, as two hosts: training over TCP, and going on without a host
# that is gone.
#
#   hosts_test.sh ROOT PROGRAM
set -uo pipefail
root=$1 program=$2
. "$root/tests/ranks.sh"
cd "$scratch" || exit 1

name=df$$
leave() {
  local space
  for space in "$name"-a "$name"-b "$name"-switch; do
    ip netns pids "$space" 2>/dev/null | xargs -r kill -9 2>/dev/null
    ip netns del "$space" 2>/dev/null
  done
  rm -rf "$scratch"
}
trap leave EXIT

if ! command -v ip >/dev/null; then
  echo "skipped: no ip here (package iproute2)"
  exit 77
fi
if ! ip netns add "$name-switch" 2>err || ! ip -n "$name-switch" link add bridge type bridge 2>err; then
  echo "skipped: network namespaces are not permitted here: $(cat err)"
  exit 77
fi
ip -n "$name-switch" link set bridge up
number=0
for host in a b; do
  number=$((number + 1))
  ip netns add "$name-$host"
  ip link add eth0 netns "$name-$host" type veth peer name "port-$host" netns "$name-switch" || fail "veth"
  ip -n "$name-switch" link set "port-$host" master bridge up
  ip -n "$name-$host" address add "10.77.0.$number/24" dev eth0
  ip -n "$name-$host" link set eth0 up
  ip -n "$name-$host" link set lo up
  mkdir "tmp-$host"
done

# As ssh: HOST COMMAND...
cat >agent.sh <<END
#!/bin/bash
host=\$1
shift
case \$host in
  10.77.0.1) space=$name-a tmp=$scratch/tmp-a ;;
  10.77.0.2) space=$name-b tmp=$scratch/tmp-b ;;
  *) exit 255 ;;
esac
[ ! -e $scratch/gone-\$host ] || exit 255
exec ip netns exec \$space unshare --uts sh -c "hostname h\${host##*.}; TMPDIR=\$tmp; export TMPDIR; \$*"
END
chmod +x agent.sh
network=(--allow-run-as-root --mca plm_rsh_agent "$scratch/agent.sh" --mca btl tcp,self
  --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24)
# COMMAND... on the first host.
first() { timeout -k 5 200 "$scratch/agent.sh" 10.77.0.1 "$(printf '%q ' "$@")"; }

options=("${small[@]}" --dwa 2x1 --steps 12 --batch-size 8 --eval-every 6 --save-every 5)
"$program" train one "${options[@]}" >/dev/null || fail "one process"
before=$(ip -n "$name-switch" -s link show port-b | awk '/RX:/ { getline; print $1 }')
first mpirun "${network[@]}" --host 10.77.0.1:1,10.77.0.2:1 -n 2 "$program" train "$scratch/two" "${options[@]}" \
  >out 2>err || fail "two hosts: $(cat err)"
after=$(ip -n "$name-switch" -s link show port-b | awk '/RX:/ { getline; print $1 }')
for key in loss val_loss final_loss; do
  close two one $key || fail "$key on two hosts"
done
# The gradients of the second host crossed the wire: at least half of the parameters at every step.
parameters=$(sed -nE 's/.*"parameters": ([0-9]+).*/\1/p' two/summary.json)
[ $((after - before)) -gt $((12 * 4 * parameters / 2)) ] || fail "only $((after - before)) bytes came from the second host"

# The second host goes away in the middle: train-elastic goes on with the first alone.
printf '10.77.0.1 slots=1\n10.77.0.2 slots=1  # goes away\n' >hosts
first "$root/scripts/train-elastic" --hostfile "$scratch/hosts" --rsh "$scratch/agent.sh" --program "$program" --wait 0 \
  -- "${network[@]}" -- "$scratch/elastic" "${options[@]}" --steps 60 --save-every 2 >out 2>err &
job=$!
wait_for_steps elastic 8 $job || fail "elastic: $(cat err)"
touch gone-10.77.0.2
ip netns pids "$name-b" | xargs kill -9
wait $job || fail "elastic: $(cat err)"
grep -q "host 10.77.0.2 does not answer, and is left out" err || fail "elastic: $(cat err)"
grep -q '"ranks": 1' elastic/summary.json || fail "elastic: $(cat elastic/summary.json)"
"$program" train long "${options[@]}" --steps 60 --save-every 2 >/dev/null || fail "one process"
close elastic long loss || fail "a run that lost a host"
echo passed
