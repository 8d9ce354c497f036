#!/bin/sh
# Runs one Alluxio process: entrypoint.sh master | worker | fuse
#
# From the environment:
#   ALLUXIO_PROPERTIES_FILE  settings of all processes of the cluster; its name must be alluxio-site.properties
#   ALLUXIO_JAVA_OPTS        options of this process's JVM, separated by blanks
#   ALLUXIO_MASTER_HOSTNAME  where the master is reached
#   ALLUXIO_HOSTNAME         worker and fuse: this process's own host name, as others reach it
#   NODE_NAME                worker and fuse: the node; equal names make a worker local to a client
#   FUSE_MOUNT_POINT         fuse: where to mount; FUSE_OPTIONS its options, comma-separated
#   ALLUXIO_HOME             lib/, names/ and conf/ (default /opt/alluxio)
#   ALLUXIO_DATA             master: journal and root folder (default /var/lib/alluxio)
#   FUSE_PATH                fuse: what of the cache to mount (default /)
#   FUSE_YOUNG_SECONDS       fuse: a client that was killed is started again here when it had run that long (default 10)
set -euf  # f: nothing here is a file name pattern
export LC_ALL=C.UTF-8  # without it Java cannot name files beyond ASCII

fail() {
    echo "alluxio $role: $1" >&2
    exit 64
}

need() {
    eval "value=\${$1:-}"
    [ -n "$value" ] || fail "the environment variable $1 is not set; set it to $2"
}

role=${1:-}
home=${ALLUXIO_HOME:-/opt/alluxio}
data=${ALLUXIO_DATA:-/var/lib/alluxio}
properties=${ALLUXIO_PROPERTIES_FILE:-/etc/alluxio/alluxio-site.properties}
java=${JAVA_HOME:+$JAVA_HOME/bin/}java

[ "${properties##*/}" = alluxio-site.properties ] || fail "$properties must be called alluxio-site.properties"
[ -r "$properties" ] || fail "cannot read $properties; mount the cluster's settings there"
need ALLUXIO_MASTER_HOSTNAME "the host name of the master"

# run_java HOW MAIN-CLASS ARGUMENT...: HOW is what to do with the finished command line.
run_java() {
    how=$1
    main=$2
    shift 2
    # ALLUXIO_JAVA_OPTS and identity are split at blanks on purpose; lib/* is for Java to expand. Of two readers of one
    # kind of source Alluxio takes the one that it finds last: that in names/, by which a worker reads no folder.
    # shellcheck disable=SC2086
    set -- "$java" ${ALLUXIO_JAVA_OPTS:-} \
        "-Dalluxio.home=$home" "-Dalluxio.conf.dir=$home/conf" "-Dalluxio.site.conf.dir=${properties%/*}" \
        "-Dlog4j.configuration=file:$home/conf/log4j.properties" \
        "-Dalluxio.master.hostname=$ALLUXIO_MASTER_HOSTNAME" \
        ${identity:-} -cp "$home/lib/*:$home/names/*" "$main" "$@"
    "$how" "$@"
}

become() { exec "$@"; }
run() { "$@"; }
background() { "$@" & }

case $role in
master)
    mkdir -p "$data/journal" "$data/root"
    # Formatting empties a journal, so only one that holds nothing is formatted. A volume's own lost+found does not count.
    if [ -z "$(ls -A "$data/journal" | grep -vx 'lost+found' || true)" ]; then
        echo "alluxio master: the journal in $data/journal is empty: formatting it"
        run_java run alluxio.cli.Format master
    fi
    run_java become alluxio.master.AlluxioMaster
    ;;
worker)
    need ALLUXIO_HOSTNAME "this worker's host name"
    need NODE_NAME "the name of this node"
    identity="-Dalluxio.worker.hostname=$ALLUXIO_HOSTNAME -Dalluxio.locality.node=$NODE_NAME"
    run_java become alluxio.worker.AlluxioWorker
    ;;
fuse)
    need ALLUXIO_HOSTNAME "this client's host name"
    need NODE_NAME "the name of this node"
    need FUSE_MOUNT_POINT "the folder to mount at"
    [ -c /dev/fuse ] || fail "there is no /dev/fuse; load the kernel module fuse on this node, and run privileged"

    unmount() {
        # Lazily, since readers may hold files open; more than once, since mounts can be stacked.
        while grep -qsF " $FUSE_MOUNT_POINT fuse" /proc/self/mounts; do
            umount -l "$FUSE_MOUNT_POINT" || break
        done
    }
    identity="-Dalluxio.user.hostname=$ALLUXIO_HOSTNAME -Dalluxio.locality.node=$NODE_NAME"
    stopping=
    client=
    trap 'stopping=yes; [ -z "$client" ] || kill -TERM "$client" 2>/dev/null || true' TERM INT
    while [ -z "$stopping" ]; do
        # A client that was killed leaves a dead mount, at which nothing can be mounted and which even mkdir cannot see.
        unmount
        mkdir -p "$FUSE_MOUNT_POINT"
        begun=$(date +%s)
        run_java background alluxio.fuse.AlluxioFuse \
            -m "$FUSE_MOUNT_POINT" -a "${FUSE_PATH:-/}" ${FUSE_OPTIONS:+-o "$FUSE_OPTIONS"}
        client=$!
        # A signal ends wait early; the client's own end is what counts, also of one that has ended already.
        while :; do
            wait $client && code=0 || code=$?
            kill -0 $client 2>/dev/null || break
        done
        unmount
        # One that was killed comes back at once: kubelet would wait for longer each time. One that dies young is kubelet's.
        [ "$code" = 137 ] && [ $(($(date +%s) - begun)) -ge "${FUSE_YOUNG_SECONDS:-10}" ] || exit "$code"
        echo "alluxio fuse: the client was killed; starting it again" >&2
    done
    exit 0
    ;;
*)
    role=${role:-?}
    fail "say what to run: master, worker or fuse"
    ;;
esac
