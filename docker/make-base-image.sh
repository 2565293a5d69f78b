#!/bin/sh
# make-base-image.sh - makes the image debian:trixie-slim by debootstrap, where no image registry can be reached.
#
#   docker/make-base-image.sh              the image, for docker-compose.yml to build from
#   docker/make-base-image.sh --tree DIR   only the tree that would go into it, for chroot(8); DIR must not exist
#
# Needs root and debootstrap. Packages come from where this host's own apt gets Debian's, through the same proxy; MIRROR=URL
# overrides it. DOCKER=COMMAND names the docker client, RELEASE=NAME another Debian release, also one that is newer than this
# host's debootstrap (forky).
set -eu

RELEASE=${RELEASE:-trixie}
DOCKER=${DOCKER:-docker}
IMAGE=debian:$RELEASE-slim
WORK=

say() { printf 'make-base-image: %s\n' "$*"; }
fail() { printf 'make-base-image: %s\n' "$*" >&2; exit 1; }
usage() { sed -n '2,8s/^# \{0,1\}//p' "$0"; }

clean() {
    [ -z "$WORK" ] || rm -rf --one-file-system "$WORK"
}

# The archives of one label ("Debian", "Debian-Security") that this host's apt uses, without duplicates, the first one.
archive() {
    apt-get indextargets --format '$(LABEL) $(CREATED_BY) $(REPO_URI)' | sed -n "s/^$1 Packages //p" | sort -u | head -n 1
}

# debootstrap fetches by wget, which knows proxies from the environment only.
use_the_proxy_of_apt() {
    PROXY=
    eval "$(apt-config shell PROXY Acquire::http::Proxy)"
    case $PROXY in
    '' | DIRECT) ;;
    *) [ -n "${http_proxy:-}" ] || export http_proxy="$PROXY" ;;
    esac
}

# What makes Debian's own slim image slim: no documentation, manuals and translations, now and in later installations.
slim() {
    cat > "$1/etc/dpkg/dpkg.cfg.d/docker" <<EXCLUDES
path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/info/*
path-exclude /usr/share/locale/*
path-exclude /usr/share/man/*
EXCLUDES
    find "$1/usr/share/doc" -type f ! -name copyright -delete
    find "$1/usr/share/doc" -depth -type d -empty -delete
    rm -rf "$1"/usr/share/info/* "$1"/usr/share/locale/* "$1"/usr/share/man/*
    rm -rf "$1"/var/cache/apt/* "$1"/var/lib/apt/lists/* "$1"/var/log/*.log "$1"/var/log/apt
}

# A chroot and a container have no init: packages must not try to start services.
start_nothing() {
    printf '#!/bin/sh\nexit 101\n' > "$1/usr/sbin/policy-rc.d"
    chmod 755 "$1/usr/sbin/policy-rc.d"
}

# The testing release changes daily, and a mirror or a cache of one is a few days behind at times. Its lists have run out then.
take_older_lists() {
    case $RELEASE in
    bookworm | trixie) ;;
    *) printf 'Acquire::Check-Valid-Until "false";\n' > "$1/etc/apt/apt.conf.d/80older-lists" ;;
    esac
}

# The script that debootstrap makes the release by; it has none for releases that are newer than itself, and sid's does for those.
debootstrap_script() {
    [ -e "/usr/share/debootstrap/scripts/$RELEASE" ] || echo sid
}

write_sources() {
    {
        printf 'deb %s %s main\n' "$MIRROR" "$RELEASE"
        printf 'deb %s %s-updates main\n' "$MIRROR" "$RELEASE"
        [ -z "$SECURITY" ] || printf 'deb %s %s-security main\n' "$SECURITY" "$RELEASE"
    } > "$1/etc/apt/sources.list"
}

make_tree() {
    command -v debootstrap >/dev/null || fail "debootstrap is not installed: apt-get install debootstrap"
    SECURITY=
    if [ -z "${MIRROR:-}" ]; then
        MIRROR=$(archive Debian)
        SECURITY=$(archive Debian-Security)
    fi
    [ -n "$MIRROR" ] || fail "this host's apt names no archive of Debian: MIRROR=http://... $0"
    use_the_proxy_of_apt
    more=
    case $MIRROR$SECURITY in *https:*) more=--include=ca-certificates ;; esac
    say "debootstrap of $RELEASE from $MIRROR"
    debootstrap --variant=minbase $more "$RELEASE" "$1" "$MIRROR" $(debootstrap_script) > "$1.log" 2>&1 || {
        tail -n 20 "$1.log" >&2
        fail "debootstrap failed, its messages are in $1.log and $1/debootstrap/debootstrap.log"
    }
    rm -f "$1.log"
    write_sources "$1"
    take_older_lists "$1"
    start_nothing "$1"
}

make_image() {
    "$DOCKER" version >/dev/null 2>&1 || fail "no Docker engine answers \"$DOCKER version\": systemctl start docker"
    WORK=$(mktemp -d "${TMPDIR:-/var/tmp}/make-base-image.XXXXXX")
    make_tree "$WORK/tree"
    slim "$WORK/tree"
    tar --numeric-owner --one-file-system -C "$WORK/tree" -c . |
        "$DOCKER" import --change 'CMD ["bash"]' - "$IMAGE" >/dev/null
    say "made $("$DOCKER" image ls --format '{{.Repository}}:{{.Tag}} ({{.Size}})' "$IMAGE")"
}

[ "$#" -eq 0 ] || [ "$1" = --tree ] || { usage; exit 2; }
[ "$(id -u)" = 0 ] || fail "debootstrap needs root: sudo RELEASE=$RELEASE $0 $*"
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
if [ "$#" -eq 0 ]; then
    make_image
else
    [ "$#" -eq 2 ] || { usage; exit 2; }
    [ ! -e "$2" ] || fail "$2 exists already"
    make_tree "$2"
    say "made $2: chroot $2"
fi
