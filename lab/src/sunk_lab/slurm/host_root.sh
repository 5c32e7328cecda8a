#!/bin/bash
# Becomes pid 1 of the namespaces of a cluster on the machine: makes their root file system and goes into it.
#   host_root.sh ROOT FOLDER    FOLDER becomes /lab
# ROOT is shared with every other cluster of its release, so it is read-only here; every mount belongs to the mount
# namespace and goes with it. Daemons are started from outside; what they leave behind is reaped here.
set -eu
root=$1 folder=$2
hostname ctl
mount --bind "$root" "$root"
mount --bind "$folder" "$root/lab"
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
for fresh in run tmp var/spool var/log; do mount -t tmpfs tmpfs "$root/$fresh"; done
chmod 1777 "$root/tmp"
mount --bind "$root/lab/etc/hosts" "$root/etc/hosts"
mkdir -p "$root/run/slurm" "$root/run/slurmctld"
exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin /usr/bin/tini -- sleep infinity
