#!/usr/bin/env bash
# brokers.sh start FOLDER: everything that --kafka=java and --kafka=docker need: Java,
# Maven, Kafka's jars, a private Docker engine under FOLDER, and the broker's image.
# Only what is missing is installed, fetched or built; a second call does nothing new.
# Then FOLDER/env exports DOCKER_HOST for the tests:  . FOLDER/env
# brokers.sh stop FOLDER: ends that engine, and what tests left in it.
# Run as root, on Debian or Ubuntu. What was installed stays.
set -euo pipefail
command=${1:?start or stop} folder=$(realpath -m "${2:?a folder of its own}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export DEBIAN_FRONTEND=noninteractive PYTHONDONTWRITEBYTECODE=1
started=$SECONDS

say() { printf '[brokers %3d s] %s\n' "$((SECONDS - started))" "$*"; }

# install PROGRAM PACKAGE...: the packages, if the program is not there
install() {
    local program=$1
    shift
    if type -P "$program" > /dev/null; then
        say "$program: was there"
        return
    fi
    # A new machine has no package lists, or old ones that name vanished files.
    [ -n "${lists_are_fresh:-}" ] || apt-get update -qq
    lists_are_fresh=1
    apt-get install -y -qq --no-install-recommends "$@" > /dev/null
    say "$program: installed $*"
}

start() {
    install javac default-jdk-headless # the compiler for Spark's shim
    install mvn maven
    install dockerd docker.io iptables
    say "Kafka's jars: $(python3 -m tests.harness.brokers.jars)"
    DOCKER_HOST=$(python3 -m tests.harness.brokers.engine start "$folder/docker")
    export DOCKER_HOST
    say "Docker engine: $DOCKER_HOST"
    say "image $(python3 -m tests.harness.brokers.build_image)"
    echo "export DOCKER_HOST=$DOCKER_HOST" > "$folder/env"
    say "ready: . $folder/env"
}

stop() {
    python3 -m tests.harness.brokers.engine stop "$folder/docker"
    rm -f "$folder/env"
    say "the Docker engine under $folder is stopped"
}

case $command in
    start | stop) "$command" ;;
    *) echo "brokers.sh start|stop FOLDER" >&2; exit 2 ;;
esac
