# Slurm: slurmctld, slurmdbd, slurmrestd, slurmd and login, from Debian's packages. What runs is the chart's to say.
#
#   docker build -f images/slurm.Dockerfile --build-arg SUITE=trixie --build-arg VERSION=24.11 -t sunk/slurm:24.11 .
#   docker build -f images/slurm.Dockerfile --build-arg SUITE=forky --build-arg VERSION=26.05 -t sunk/slurm:26.05 .
#
# Debian's suite in the making has no SSSD at times: then the image knows no users of a directory (values: `directory`).
# Its Slurm has no PMIx: slurm-pmix builds that.
# The lab makes the same content without a container engine: lab/src/sunk_lab/slurm/cluster_images.py.
ARG SUITE=trixie

FROM debian:${SUITE}-slim
ARG SUITE
ARG VERSION
LABEL org.opencontainers.image.title="slurm" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY images/slurm.packages /tmp/packages
COPY images/slurm-pmix /tmp/
RUN apt-get update \
 && { apt-cache show sssd-ldap >/dev/null 2>&1 || sed -i '/^libnss-sss$/d;/^sssd-ldap$/d' /tmp/packages; } \
 && grep -v '^#' /tmp/packages | DEBIAN_FRONTEND=noninteractive xargs apt-get install -y --no-install-recommends \
 && slurmctld -V | grep -F "slurm-wlm ${VERSION}" \
 && sh /tmp/slurm-pmix \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /tmp/packages /tmp/slurm-pmix /etc/ssh/ssh_host_*_key* \
 && groupadd --gid 64100 sunk && useradd --uid 64100 --gid 64100 --no-create-home --home-dir / sunk \
 && mkdir -p /etc/sunk /var/spool/slurmctld /var/spool/slurmd /var/log/slurm /run/sshd \
 && dpkg-query --show --showformat '${Package} ${Version} ${Architecture}\n' > /usr/share/sunk-packages.txt
ENTRYPOINT ["/usr/bin/tini", "--"]
