# Sourced: runs the script again in a mount namespace with an empty /run as its working directory.
# Keys, configurations and control sockets are there. The kernel frees them with the last process.
if [ -z "$SCOREBOARD" ]; then
    SCOREBOARD=$(realpath "$(dirname "$0")") || exit 1
    export SCOREBOARD
    exec unshare --mount "$SCOREBOARD/$(basename "$0")" "$@"
fi
mount -t tmpfs tmpfs /run && cd /run || exit 1
umask 077
# If one process ends, the script ends. The EXIT trap terminates the other processes.
trap 'kill $(jobs -p) 2>/dev/null' EXIT
trap 'exit 1' INT TERM
