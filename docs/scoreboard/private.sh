# Sourced: runs the script again in a mount namespace with an empty /run, which becomes the working
# directory. Keys, configurations and control sockets are there, and disappear with the processes.
if [ -z "$SCOREBOARD" ]; then
    SCOREBOARD=$(realpath "$(dirname "$0")") || exit 1
    export SCOREBOARD
    exec unshare --mount "$SCOREBOARD/$(basename "$0")" "$@"
fi
mount -t tmpfs tmpfs /run && cd /run || exit 1
umask 077
# When one process ends, the script ends, and its end ends the others.
trap 'kill $(jobs -p) 2>/dev/null' EXIT
trap 'exit 1' INT TERM
